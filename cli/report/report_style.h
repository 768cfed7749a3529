// Contains the style sheet of a report's page. The page's script uses its classes
// (report_script.h).
#pragma once

namespace dslaunch {

inline constexpr char kReportStyle[] = R"(
:root{color-scheme:light dark;--page:#f4f5f7;--card:#fff;--ink:#15181d;--soft:#5d6673;--edge:#e2e5ea;
--grid:#eceef1;--axis:#b9c0ca;--grey:#9aa3b0;--good:#0a7d3c;--bad:#c4262e;--busy:#2a66c8;--warn:#fff6e0;
--c0:#2a78d6;--c1:#e0602a;--c2:#159a6c;--c3:#c98a00;--c4:#cf4f86;--c5:#6a55c8;--c6:#d9423f;--c7:#5d7d1a}
@media(prefers-color-scheme:dark){:root{--page:#0f1114;--card:#181b20;--ink:#e9ebee;--soft:#9ba4b1;
--edge:#2a2f37;--grid:#242930;--axis:#4a525d;--grey:#6f7885;--good:#4cc38a;--bad:#ff7b72;--busy:#79aeff;
--warn:#33290f;--c0:#5598e7;--c1:#ee8150;--c2:#35b98a;--c3:#dba62c;--c4:#e57fab;--c5:#9d8cf0;
--c6:#ef6f6b;--c7:#9dbd55}}
@media print{:root{color-scheme:light;--page:#fff;--card:#fff;--ink:#15181d;--soft:#4a525d;--edge:#ccd1d8;
--grid:#e4e7eb;--axis:#9aa3b0;--grey:#8b94a1;--good:#0a7d3c;--bad:#c4262e;--busy:#2a66c8;--warn:#fff6e0;
--c0:#2a78d6;--c1:#e0602a;--c2:#159a6c;--c3:#c98a00;--c4:#cf4f86;--c5:#6a55c8;--c6:#d9423f;--c7:#5d7d1a}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",
Roboto,"Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums}
main{max-width:1120px;margin:0 auto;padding:28px 20px 40px;display:grid;gap:16px;
grid-template-columns:repeat(6,minmax(0,1fr))}
main>*{min-width:0;grid-column:1/-1}
@media(min-width:700px){.half{grid-column:span 3}.third{grid-column:span 3}}
@media(min-width:1000px){.third{grid-column:span 2}}
header{display:flex;flex-wrap:wrap;gap:4px 14px;align-items:center}
h1{font-size:26px;line-height:1.2;margin:0;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:16px;margin:0 0 2px}
h3{font-size:13px;margin:18px 0 4px;color:var(--soft);font-weight:600}
p{margin:0}
header p{flex-basis:100%;color:var(--soft);overflow-wrap:anywhere}
code,pre{font:13px/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}
pre{margin:0}
.state{font-weight:600;font-size:13px;border:1px solid currentColor;border-radius:99px;padding:2px 11px}
.good{color:var(--good)}.bad{color:var(--bad)}.busy{color:var(--busy)}
.card,.tiles,.note{background:var(--card);border:1px solid var(--edge);border-radius:10px}
.card{padding:16px 18px 14px}
.lead,.missing{color:var(--soft);font-size:14px;margin-bottom:8px}
.scroll+.missing{margin:6px 0 0}
.note{padding:12px 18px;border-left:4px solid var(--bad)}
.note.mild{background:var(--warn);border-left-color:var(--c3);font-size:14px}
.note ul{margin:4px 0 0;padding-left:18px}
#not_recorded ul{margin:4px 0 0;padding-left:18px;color:var(--soft);font-size:14px}
.tiles{margin:0;display:grid;grid-template-columns:repeat(2,minmax(0,1fr));overflow:hidden}
@media(min-width:700px){.tiles{grid-template-columns:repeat(4,minmax(0,1fr))}}
@media print{.tiles{grid-template-columns:repeat(4,minmax(0,1fr))}}
.tiles div{padding:13px 18px;box-shadow:-1px -1px 0 var(--edge)}
.tiles dt{color:var(--soft);font-size:13px}
.tiles dd{margin:0;font-size:21px;font-weight:600;line-height:1.3;overflow-wrap:anywhere}
.tiles small{display:block;font-size:12.5px;font-weight:400;color:var(--soft);line-height:1.35}
.scroll{overflow-x:auto}
svg.plot{display:block;width:100%;height:auto;font-size:11.5px}
.on-narrow{display:none}
@media(max-width:699px){.on-wide{display:none}.on-narrow{display:block}}
@media print{.on-wide{display:block}.on-narrow{display:none}}
.tick{fill:var(--soft)}
.grid{stroke:var(--grid)}.axis{stroke:var(--axis)}
.mark{stroke:var(--axis);stroke-dasharray:1 4}.mark.strong{stroke:var(--bad);stroke-dasharray:5 4}
.line{fill:none;stroke:var(--c);stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.line.faint{stroke-width:1;opacity:.38}
.dot{fill:var(--c)}.band{fill:var(--c0);opacity:.18}
.cross{stroke:var(--bad);stroke-width:1.6;fill:none}
.pointed{fill:transparent}.pointed:hover{fill:var(--soft);fill-opacity:.12}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 16px;margin:0 0 4px;padding:0;font-size:13px;
color:var(--soft)}
.legend i{display:inline-block;width:14px;height:4px;border-radius:2px;margin-right:6px;
vertical-align:middle;background:var(--c)}
.grey{--c:var(--grey)}.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}
.c4{--c:var(--c4)}.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}
table{border-collapse:collapse;width:100%;font-size:13.5px}
th{font-weight:600;color:var(--soft);text-align:left;border-bottom:1px solid var(--edge)}
th,td{padding:4px 14px 4px 0;vertical-align:baseline}
td{border-bottom:1px solid var(--grid)}
tr:last-child td{border-bottom:0}
.n{text-align:right;white-space:nowrap}
.name{overflow-wrap:anywhere;min-width:120px}
.bars{width:38%;min-width:130px;padding-right:0}
.bar{display:flex;height:10px;border-radius:3px;overflow:hidden;margin:2px 0}
.bar i{display:block;background:var(--c)}
.swatch{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:8px;background:var(--c)}
.total td{font-weight:600;border-top:1px solid var(--axis)}
@media(max-width:699px){.bars{display:none}th,td{padding-right:8px}th.n{white-space:normal}.name{min-width:84px}
main{padding:20px 12px 32px}.card{padding:14px}.tiles div{padding:11px 14px}}
footer{color:var(--soft);font-size:13px}
@media print{body{font-size:11pt}main{max-width:none;padding:0;gap:10px}.card,.tiles,.note{break-inside:avoid}.scroll{overflow:visible}
.third,.half{grid-column:span 3}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)";

}  // namespace dslaunch

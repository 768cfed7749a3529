// Contains the script of a report's page, which draws the document in the page (report_document.h).
#pragma once

namespace dslaunch {

// The script uses texts of the document only for text nodes and for values of attributes, so they
// cannot add elements.
inline constexpr char kReportScript[] = R"JS(
'use strict';
const doc = JSON.parse(document.getElementById('data').textContent);
const main = document.querySelector('main');
const WHOLE = 1080, WIDTHS = {third: 350, half: 440, wide: WHOLE};
const NARROW_HEIGHT = 230;

// --- Elements ---

function add(parent, tag, attributes = {}, text = '') {
  const svg = tag === 'svg' || parent.namespaceURI === 'http://www.w3.org/2000/svg';
  const node = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== '') node.textContent = text;
  return parent.appendChild(node);
}

// A string, {strong: string}, {code: string}, or a list of these.
function addText(parent, text) {
  for (const span of [text].flat()) {
    if (typeof span === 'string') parent.append(span);
    else for (const [tag, inner] of Object.entries(span)) add(parent, tag, {}, inner);
  }
}

// --- Numbers ---

function digits(value, count) {
  const rounded = Number(value.toPrecision(count));
  return Math.abs(rounded) < 1e15 ? String(rounded) : rounded.toExponential();
}

function short(value) {
  const size = Math.abs(value);
  for (const [unit, scale, name] of [[1e12, 1e12, 'T'], [1e9, 1e9, 'G'], [1e6, 1e6, 'M'], [1e4, 1e3, 'k']])
    if (size < 1e15 && size >= unit * 0.99999) return digits(value / scale, 4) + name;
  return digits(value, 4);
}

function seconds(value) {
  if (value === 0) return '0 s';
  if (Math.abs(value) < 1e-3) return digits(value * 1e6, 3) + ' µs';
  if (Math.abs(value) < 1) return digits(value * 1e3, 3) + ' ms';
  if (value < 100) return digits(value, 3) + ' s';
  const minutes = Math.floor(Math.round(value) / 60), hours = Math.floor(minutes / 60);
  const two = (large, unit, small, smallUnit) => `${large} ${unit}` + (small ? ` ${small} ${smallUnit}` : '');
  return hours < 1 ? two(minutes, 'min', Math.round(value) - minutes * 60, 's')
                   : two(hours, 'h', minutes - hours * 60, 'min');
}

function percent(part) {
  const value = part * 100;
  if (value !== 0 && Math.abs(value) < 0.05) return '<0.1%';
  return (value !== 0 && Math.abs(value) < 10 ? value.toFixed(1) : value.toFixed(0)) + '%';
}

const NUMBERS = {
  number: short, seconds, percent,
  whole: value => Number.isInteger(value) && value < 1e9 ? String(value) : short(value),
};

// --- Plots ---

// 1, 2 or 5 times a power of ten, not below `step`.
function niceStep(step) {
  const power = 10 ** Math.floor(Math.log10(step));
  return ([1, 2, 5].find(factor => step <= factor * power * (1 + 1e-9)) || 10) * power;
}

// The positions of grid lines: round numbers within [low, high], about `wanted`.
function ticksOf(low, high, wanted, scale) {
  if (!(high > low)) return [low];
  const ticks = [];
  if (scale !== 'linear') {
    const base = Math.log(scale === 'log2' ? 2 : 10);
    const first = Math.ceil(Math.log(low) / base - 1e-6), last = Math.floor(Math.log(high) / base + 1e-6);
    const step = Math.max(1, Math.ceil((last - first) / wanted));
    for (let power = first; power <= last; power += step) ticks.push(Math.exp(base * power));
    if (ticks.length >= 2) return ticks.map(tick => Number(tick.toPrecision(12)));
    ticks.length = 0;
  }
  const step = niceStep((high - low) / wanted), first = Math.ceil(low / step - 1e-6);
  for (let i = 0; i <= 2 * wanted + 1 && (first + i) * step <= high + step * 1e-6; ++i) ticks.push((first + i) * step);
  return ticks.length ? ticks : [low];
}

// Widens a range by a margin, so that its size is never 0.
function withAir([low, high], plot) {
  if (plot.scale !== 'linear') {
    const air = high > low * 1.0001 ? (high / low) ** 0.05 : 2;
    return [low / air, high * air];
  }
  if (plot.from_zero && low >= 0) return [0, high > 0 ? high * 1.08 : 1];
  const size = high - low, most = Math.max(Math.abs(low), Math.abs(high));
  const air = size > most * 1e-9 ? size * 0.06 : most > 0 ? most * 0.1 : 1;
  return [low >= 0 && low < air ? 0 : low - air, high + air];
}

function colorOf(line) { return line.color < 0 ? 'grey' : 'c' + line.color % 8; }

function draw(parent, plot, width, height) {
  const LEFT = 58, RIGHT = 14, TOP = 22, BOTTOM = 26, POINTED = 60;
  const isLog = plot.scale !== 'linear', number = NUMBERS[plot.number];
  const canShow = y => !isLog || y >= 1e-30;
  const all = plot.lines.flatMap(line => line.pieces.flat());
  for (const [x, low, high] of plot.band || []) all.push([x, low], [x, high]);
  const shown = all.filter(point => canShow(point[1]));
  if (!shown.length) return;
  const range = axis => shown.reduce(([low, high], point) => [Math.min(low, point[axis]), Math.max(high, point[axis])],
                                     [Infinity, -Infinity]);
  let [x0, x1] = range(0), [y0, y1] = range(1);
  if (plot.y_limit > y0) y1 = Math.min(y1, plot.y_limit);
  [y0, y1] = withAir([y0, y1], plot);
  if (x0 === x1) [x0, x1] = [x0 - 1, x1 + 1];
  const onAxis = (value, low, high, from, to) => from + (to - from) * (value - low) / Math.max(high - low, 1e-300);
  const at = v => Math.round(v * 10) / 10;
  const x = value => at(onAxis(value, x0, x1, LEFT, width - RIGHT));
  const y = value => at(isLog ? onAxis(Math.log(value), Math.log(y0), Math.log(y1), height - BOTTOM, TOP)
                              : onAxis(value, y0, y1, height - BOTTOM, TOP));
  const svg = add(parent, 'svg', {class: 'plot', viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': plot.title});
  const floor = height - BOTTOM;
  for (const tick of ticksOf(y0, y1, 5, plot.scale)) {
    add(svg, 'line', {class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick)});
    add(svg, 'text', {class: 'tick', x: LEFT - 7, y: y(tick) + 4, 'text-anchor': 'end'}, number(tick));
  }
  add(svg, 'line', {class: 'axis', x1: LEFT, x2: width - RIGHT, y1: floor, y2: floor});
  // Steps are whole numbers; very large ones are rounded to the same number.
  const steps = ticksOf(x0, x1, Math.max(Math.floor(width / 100), 5), 'linear').filter(Number.isInteger);
  for (const tick of new Set(steps))
    add(svg, 'text', {class: 'tick', x: x(tick), y: floor + 17, 'text-anchor': 'middle'}, short(tick));
  add(svg, 'text', {class: 'tick', x: LEFT - 22, y: floor + 17, 'text-anchor': 'end'}, 'step');
  if (plot.unit) add(svg, 'text', {class: 'tick', x: 2, y: 12}, plot.unit);
  drawMarks();
  // A nested <svg> clips what lies outside.
  const inner = add(svg, 'svg', {x: 0, y: TOP, width, height: floor - TOP, viewBox: `0 ${TOP} ${width} ${floor - TOP}`});
  const band = (plot.band || []).filter(([, low]) => canShow(low));
  if (band.length) {
    const edge = (part, side) => part.map(entry => `${x(entry[0])},${y(entry[side])}`).join(' ');
    add(inner, 'polygon', {class: 'band', points: edge(band, 2) + ' ' + edge([...band].reverse(), 1)});
  }
  for (const line of plot.lines) {
    const look = colorOf(line) + (line.faint ? ' faint' : '');
    for (const piece of line.pieces) {
      const points = piece.filter(point => canShow(point[1])).map(point => [x(point[0]), y(point[1])]);
      if (points.length > 1) add(inner, 'polyline', {class: 'line ' + look, points: points.join(' ')});
      else if (points.length) add(inner, 'circle', {class: 'dot ' + look, cx: points[0][0], cy: points[0][1], r: 3});
    }
  }
  drawCrosses();
  drawPointed();

  function drawMarks() {
    let freeFrom = LEFT, last = -1;
    for (const mark of plot.marks || []) {
      if (mark.x < x0 || mark.x > x1 || x(mark.x) < last + 1) continue;
      last = x(mark.x);
      add(svg, 'line', {class: mark.strong ? 'mark strong' : 'mark', x1: last, x2: last, y1: TOP - 4, y2: floor});
      const size = 6 * mark.label.length, begin = Math.min(last + 3, width - RIGHT - size);
      if (!mark.label || begin < freeFrom) continue;
      add(svg, 'text', {class: 'tick', x: begin, y: 12}, mark.label);
      freeFrom = begin + size + 8;
    }
  }

  function drawCrosses() {
    let last = -10;
    for (const step of plot.crosses || []) {
      if (step < x0 || step > x1 || x(step) < last + 3) continue;
      last = x(step);
      add(svg, 'path', {class: 'cross', d: `M${last - 3} ${floor - 9}l6 6m0 -6l-6 6`});
    }
  }

  // Tooltips with the numbers of the lines in the legend.
  function drawPointed() {
    const size = (width - LEFT - RIGHT) / POINTED;
    for (let i = 0; i < POINTED; ++i) {
      const from = LEFT + i * size;
      let text = '';
      for (const line of plot.lines) {
        if (line.faint && !line.name) continue;
        for (const piece of line.pieces) {
          const found = piece.find(point => x(point[0]) >= from);
          if (!found || x(found[0]) >= from + size + 0.01) continue;
          if (!text) text = 'step ' + found[0];
          text += '\n' + (line.name ? line.name + ': ' : '') + number(found[1]);
        }
      }
      if (text) add(add(svg, 'rect', {class: 'pointed', x: at(from), y: TOP, width: at(size), height: floor - TOP}), 'title', {}, text);
    }
  }
}

function addPlot(parent, plot, width) {
  const named = plot.lines.filter(line => line.name);
  if (named.length > 1) addLegend(parent, named.map(line => [colorOf(line), line.name]));
  if (width < WHOLE) return draw(parent, plot, width, plot.height);
  draw(add(parent, 'div', {class: 'on-wide'}), plot, width, plot.height);
  draw(add(parent, 'div', {class: 'on-narrow'}), plot, WIDTHS.third, NARROW_HEIGHT);
}

// --- Other parts ---

function addLegend(parent, entries) {
  const list = add(parent, 'ul', {class: 'legend'});
  for (const [color, text] of entries) {
    const item = add(list, 'li');
    add(item, 'i', {class: color});
    item.append(text);
  }
}

function addBar(parent, parts) {
  const bar = add(parent, 'span', {class: 'bar'});
  for (const [part, color] of parts)
    add(bar, 'i', {class: color}).style.width = (Math.min(Math.max(part, 0), 1) * 100).toFixed(1) + '%';
}

function addCell(row, cell, isNumber) {
  const node = add(row, 'td', {class: cell.bars ? 'bars' : isNumber ? 'n' : 'name'});
  if (cell.bad) node.classList.add('bad');
  if (cell.swatch) add(node, 'i', {class: 'swatch ' + cell.swatch});
  if (cell.bars) for (const bar of cell.bars) addBar(node, bar);
  else addText(node, cell.text === undefined ? cell : cell.text);
}

function addTable(parent, table) {
  const body = add(parent, 'div', {class: 'scroll'}), node = add(body, 'table');
  const head = add(add(node, 'thead'), 'tr'), rows = add(node, 'tbody');
  const isNumber = table.columns.map(column => column.startsWith(' '));
  table.columns.forEach((column, i) => add(head, 'th', isNumber[i] ? {class: 'n'} : {}, column.trim()));
  table.rows.forEach((cells, i) => {
    const row = add(rows, 'tr', table.total && i === table.rows.length - 1 ? {class: 'total'} : {});
    cells.forEach((cell, column) => addCell(row, cell, isNumber[column]));
  });
  if (table.more) add(parent, 'p', {class: 'missing'}, table.more);
}

function addPart(parent, part, width) {
  if (part.plot) addPlot(parent, part.plot, WIDTHS[width]);
  if (part.bar) addBar(parent, part.bar);
  if (part.legend) addLegend(parent, part.legend);
  if (part.heading) add(parent, 'h3', {}, part.heading);
  if (part.text) add(add(parent, 'div', {class: 'scroll'}), 'pre', {}, part.text);
  if (part.table) addTable(parent, part.table);
}

// --- The page ---

function addCard(id, heading, width) {
  const card = add(main, 'section', {class: 'card ' + width, id});
  add(card, 'h2', {}, heading);
  return card;
}

function addList(parent, texts) {
  const list = add(parent, 'ul');
  for (const text of texts) addText(add(list, 'li'), text);
}

main.textContent = '';
const header = add(main, 'header', {class: 'wide'});
add(header, 'h1', {}, doc.heading);
if (doc.state) add(header, 'span', {class: 'state ' + doc.state.look}, {busy: '● ', good: '✓ ', bad: '✕ '}[doc.state.look] + doc.state.text);
for (const line of doc.about || []) addText(add(header, 'p'), line);
if (doc.command) add(add(header, 'p'), 'code', {}, doc.command);
if (doc.cause) {
  const note = add(main, 'section', {class: 'note wide' + (doc.cause.failed ? '' : ' mild'), id: 'cause'});
  if (doc.cause.failed) add(note, 'h2', {}, 'First cause');
  add(note, 'p', {}, doc.cause.text);
  if (doc.cause.evidence) add(add(note, 'p'), 'code', {}, doc.cause.evidence);
}
if (doc.tiles) {
  const tiles = add(main, 'dl', {class: 'tiles wide', id: 'summary'});
  for (const {label, value, note} of doc.tiles) {
    const tile = add(tiles, 'div');
    add(tile, 'dt', {}, label);
    const shown = add(tile, 'dd', {}, value);
    if (note) add(shown, 'small', {}, note);
  }
}
if (doc.left_out) {
  const note = add(main, 'section', {class: 'note mild wide', id: 'left_out'});
  add(note, 'h2', {}, 'What this page lacks');
  addList(note, doc.left_out);
}
for (const card of doc.cards || []) {
  const node = addCard(card.id, card.heading, card.width);
  if (card.lead && card.lead.length) addText(add(node, 'p', {class: 'lead'}), card.lead);
  for (const part of card.parts) addPart(node, part, card.width);
}
if (doc.not_recorded) {
  addList(addCard('not_recorded', 'Not recorded', 'wide'),
          doc.not_recorded.map(({heading, why}) => [{strong: heading}, ': ' + why]));
}
if (doc.footer) addText(add(main, 'footer', {class: 'wide'}), doc.footer);
)JS";

}  // namespace dslaunch

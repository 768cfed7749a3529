#include "cli/top/view_keys.h"

#include <algorithm>
#include <utility>

namespace dslaunch {
namespace {

constexpr size_t kSorts = 6;
constexpr size_t kTextFrame = 2;  // number of lines for title and keys

size_t LastTextAt(const TopView& view, size_t page) {
  const size_t visible = page > kTextFrame ? page - kTextFrame : 1;
  return view.text.size() > visible ? view.text.size() - visible : 0;
}

size_t Moved(size_t at, TopKey key, size_t page, size_t last) {
  const size_t half = std::max<size_t>(1, page / 2);
  switch (key) {
    case TopKey::kUp:
      return at > 0 ? at - 1 : 0;
    case TopKey::kDown:
      return std::min(at + 1, last);
    case TopKey::kPageUp:
      return at > half ? at - half : 0;
    case TopKey::kPageDown:
      return std::min(at + half, last);
    default:
      return std::min(at, last);
  }
}

TopAction OnTextKey(TopView& view, TopKey key, size_t page) {
  const bool was_text = view.mode == TopView::Mode::kText;
  const bool closes = key == TopKey::kLeave || key == TopKey::kBack;
  if (closes || (!was_text && key != TopKey::kOther)) {
    view.mode = TopView::Mode::kTable;
    return was_text ? TopAction::kCloseText : TopAction::kNone;
  }
  view.text_at = Moved(view.text_at, key, page, LastTextAt(view, page));
  return TopAction::kNone;
}

void Open(TopView& view, const TopRow& row) {
  if (!row.node) {
    view.all_nodes = true;
    return;
  }
  if (view.open_nodes.erase(*row.node) == 0) view.open_nodes.insert(*row.node);
}

}  // namespace

TopAction OnKey(TopView& view, TopKey key, const std::vector<TopRow>& table, size_t page) {
  view.message.clear();
  if (std::exchange(view.asks_to_stop, false))
    return key == TopKey::kYes ? TopAction::kStopJob : TopAction::kNone;
  if (view.mode != TopView::Mode::kTable) return OnTextKey(view, key, page);
  const size_t last = table.empty() ? 0 : table.size() - 1;
  view.cursor = Moved(view.cursor, key, page, last);
  const bool has_ranks = !table.empty() && !table[view.cursor].ranks.empty();
  switch (key) {
    case TopKey::kOpen:
      if (!table.empty()) Open(view, table[view.cursor]);
      return TopAction::kNone;
    case TopKey::kStacks:
      return has_ranks ? TopAction::kReadStacks : TopAction::kNone;
    case TopKey::kLog:
      return has_ranks ? TopAction::kFollowLog : TopAction::kNone;
    case TopKey::kSort:
      view.sort = static_cast<TopSort>((static_cast<size_t>(view.sort) + 1) % kSorts);
      return TopAction::kNone;
    case TopKey::kStop:
      view.asks_to_stop = true;
      return TopAction::kNone;
    case TopKey::kHelp:
      view.mode = TopView::Mode::kHelp;
      return TopAction::kNone;
    case TopKey::kLeave:
      // In a list of all nodes, the key first returns to the short list.
      return std::exchange(view.all_nodes, false) ? TopAction::kNone : TopAction::kLeave;
    default:
      return TopAction::kNone;
  }
}

void ShowText(TopView& view, std::string title, std::vector<std::string> lines) {
  view.mode = TopView::Mode::kText;
  view.title = std::move(title);
  view.text = std::move(lines);
  view.text_at = 0;
}

void AppendText(TopView& view, std::string line, size_t page) {
  const bool at_end = view.text_at >= LastTextAt(view, page);
  view.text.push_back(std::move(line));
  if (view.text.size() > kMostTextLines) {
    view.text.erase(view.text.begin());
    if (view.text_at > 0) --view.text_at;
  }
  if (at_end) view.text_at = LastTextAt(view, page);
}

}  // namespace dslaunch

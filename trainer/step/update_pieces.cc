#include "trainer/step/update_pieces.h"

namespace dslaunch {

std::vector<UpdatePiece> CutUpdate(const std::vector<int64_t>& elements, int64_t max_elements) {
  std::vector<UpdatePiece> pieces(1);
  int64_t in_piece = 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    if (pieces.back().end > pieces.back().begin && elements[i] > max_elements - in_piece) {
      pieces.push_back({i, i});
      in_piece = 0;
    }
    pieces.back().end = i + 1;
    in_piece += elements[i];
  }
  return pieces;
}

}  // namespace dslaunch

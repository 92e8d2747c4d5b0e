#include "checkpoint/piece.h"

#include <fmt/format.h>
#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace moesaic {

void check_piece(const Piece& piece, const std::string& where) {
  const bool kind_ok =
      !piece.kind.empty() &&
      piece.kind.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
  require<IoError>(kind_ok, "{}: kind \"{}\" of {} must consist of a-z, 0-9 and _", where, piece.kind,
                   piece.name);
  require<IoError>(!piece.name.empty(), "{}: a tensor of kind {} has no name", where, piece.kind);
  const int64_t numel = checked_numel(piece.shape, where + ": " + piece.tensor());
  require<IoError>(
      piece.begin >= 0 && piece.count >= 0 && piece.begin <= numel && piece.count <= numel - piece.begin,
      "{}: {}: {} elements from {} are not inside a tensor of {}", where, piece.tensor(), piece.count,
      piece.begin, numel);
}

void sort_and_check_cover(std::vector<StoredPiece>& pieces, const std::string& where) {
  std::sort(pieces.begin(), pieces.end(), [](const StoredPiece& a, const StoredPiece& b) {
    return std::tie(a.kind, a.name, a.begin, a.count, a.file) <
           std::tie(b.kind, b.name, b.begin, b.count, b.file);
  });
  for (size_t i = 0; i < pieces.size();) {
    const StoredPiece& first = pieces[i];
    const std::string name = first.tensor();
    int64_t covered = 0;
    const auto check_gap = [&](int64_t next) {
      require<IoError>(next <= covered, "{}: {}: elements {} to {} are missing", where, name, covered,
                       next - 1);
    };
    for (size_t start = i; i < pieces.size() && pieces[i].kind == first.kind && pieces[i].name == first.name;
         ++i) {
      const StoredPiece& piece = pieces[i];
      require<IoError>(piece.dtype == first.dtype && piece.shape == first.shape,
                       "{}: {} is {} [{}] in one piece and {} [{}] in another", where, name,
                       name_of(first.dtype), fmt::join(first.shape, ", "), name_of(piece.dtype),
                       fmt::join(piece.shape, ", "));
      check_gap(piece.begin);
      if (i > start && pieces[i - 1].begin == piece.begin && pieces[i - 1].count == piece.count) {
        require<IoError>(pieces[i - 1].digest == piece.digest,
                         "{}: {}: elements {} to {} are stored twice with different values", where, name,
                         piece.begin, piece.begin + piece.count - 1);
      }
      covered = std::max(covered, piece.begin + piece.count);
    }
    check_gap(checked_numel(first.shape, where));
  }
}

}  // namespace moesaic

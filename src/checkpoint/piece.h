#pragma once
// A piece: a range of one flattened logical tensor, as one rank holds it. A checkpoint is a set of pieces
// that covers each of its tensors; who wrote which piece does not matter to who reads, so shards of any
// layout load on any other.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace moesaic {

struct Piece {
  std::string kind;            // what of the tensor: "weight", "master", "exp_avg", ...; [a-z0-9_]+
  std::string name;            // the logical tensor, as in the parameter table: "layers.3.attn.q"
  DType dtype = DType::f32;    // of the elements
  std::vector<int64_t> shape;  // of the whole logical tensor
  int64_t begin = 0;           // first element, in the flattened logical tensor
  int64_t count = 0;           // elements

  /// "weight/layers.3.attn.q": what a tensor of a checkpoint is called in messages.
  std::string tensor() const { return kind + "/" + name; }
  /// "weight/layers.3.attn.q@4096": its entry in a shard.
  std::string entry() const { return tensor() + "@" + std::to_string(begin); }
  int64_t bytes() const { return count * size_of(dtype); }
};

/// Host memory of `count` elements, borrowed for the call that takes it.
struct PieceToSave : Piece {
  const void* data = nullptr;
};
struct PieceToLoad : Piece {
  void* data = nullptr;
};

/// A piece as it lies in a checkpoint.
struct StoredPiece : Piece {
  int64_t file = 0;    // index into the manifest's files
  int64_t offset = 0;  // bytes from the start of that file
  std::string digest;  // of its bytes (digest.h)
};

/// Throws IoError beginning with `where` if the names are not usable or the range is not inside the shape.
void check_piece(const Piece& piece, const std::string& where);
/// Sorts by tensor, then begin, and throws IoError beginning with `where` unless the pieces of each tensor
/// agree on dtype and shape, leave no element out, and carry one digest where two hold the same range
/// (replicas may both be stored).
void sort_and_check_cover(std::vector<StoredPiece>& pieces, const std::string& where);

}  // namespace moesaic

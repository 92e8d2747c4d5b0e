#pragma once
// Loading, by any number of ranks with any layout: each asks for the pieces it wants and gets them from
// whichever stored pieces hold them. Copies bits; the one conversion is f32 to bf16 and must be asked for.
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/piece.h"

namespace moesaic {

struct Manifest;

enum class Verify { sizes, contents };
enum class Conversion { none, f32_to_bf16 };

/// A published checkpoint. Threads may share one. All methods throw IoError naming file and tensor.
class CheckpointReader {
 public:
  /// Reads the manifest and checks it and the size of every file; with Verify::contents all bytes as well.
  explicit CheckpointReader(std::string path, Verify verify = Verify::contents);
  ~CheckpointReader();

  const std::string& path() const { return path_; }
  int64_t step() const;
  /// The object given to publish().
  const nlohmann::json& state() const;
  /// Sorted by tensor, then begin; they cover each tensor.
  const std::vector<StoredPiece>& pieces() const;

  /// Checks the bytes of every num_parts-th file, from file `part`: ranks may share the work (open with
  /// Verify::sizes).
  void verify_contents(int64_t part = 0, int64_t num_parts = 1) const;
  /// Fills each wanted range. Refuses an unknown tensor, another shape or dtype, and stored pieces that
  /// overlap with different values. On failure the wanted memory may be partly filled.
  void load(std::span<const PieceToLoad> wanted, Conversion conversion = Conversion::none) const;

 private:
  struct Range {
    size_t first, last;  // of pieces()
  };

  std::string path_;
  std::unique_ptr<const Manifest> manifest_;
  std::unordered_map<std::string, Range> tensors_;
};

}  // namespace moesaic

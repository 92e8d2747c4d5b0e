#include "checkpoint/reader.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <map>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "checkpoint/digest.h"
#include "checkpoint/manifest.h"

namespace moesaic {
namespace {

/// Compares or copies elements [begin, end) of the tensor between a stored piece and a wanted one, in the
/// wanted type.
class Transfer {
 public:
  Transfer(const StoredPiece& from, std::span<const std::byte> stored, const PieceToLoad& to)
      : from_(from), to_(to), stored_(stored.data()) {}

  void copy(int64_t begin, int64_t end) const {
    each_part(begin, end, [](std::byte* to, const std::byte* from, size_t bytes) {
      std::memcpy(to, from, bytes);
      return true;
    });
  }
  bool agrees(int64_t begin, int64_t end) const {
    return each_part(begin, end, [](std::byte* to, const std::byte* from, size_t bytes) {
      return std::memcmp(to, from, bytes) == 0;
    });
  }

 private:
  template <class F>
  bool each_part(int64_t begin, int64_t end, F&& f) const {
    const std::byte* from = stored_ + (begin - from_.begin) * size_of(from_.dtype);
    std::byte* to = static_cast<std::byte*>(to_.data) + (begin - to_.begin) * size_of(to_.dtype);
    if (begin == end) return true;
    if (from_.dtype == to_.dtype) return f(to, from, static_cast<size_t>((end - begin) * size_of(to_.dtype)));
    for (int64_t i = 0; i < end - begin; ++i) {
      float value;
      std::memcpy(&value, from + i * 4, 4);
      const bf16 rounded(value);
      if (!f(to + i * 2, reinterpret_cast<const std::byte*>(&rounded), 2)) return false;
    }
    return true;
  }

  const StoredPiece& from_;
  const PieceToLoad& to_;
  const std::byte* stored_;
};

void check_same_tensor(const StoredPiece& stored, const PieceToLoad& wanted, Conversion conversion,
                       const std::string& path) {
  require<IoError>(stored.shape == wanted.shape,
                   "{}: {} has shape [{}], but [{}] is wanted: the model is another one", path,
                   stored.tensor(), fmt::join(stored.shape, ", "), fmt::join(wanted.shape, ", "));
  const bool converts =
      conversion == Conversion::f32_to_bf16 && stored.dtype == DType::f32 && wanted.dtype == DType::bf16;
  require<IoError>(stored.dtype == wanted.dtype || converts, "{}: {} is stored as {}, but {} is wanted", path,
                   stored.tensor(), name_of(stored.dtype), name_of(wanted.dtype));
}

}  // namespace

CheckpointReader::CheckpointReader(std::string path, Verify verify)
    : path_(std::move(path)), manifest_(std::make_unique<const Manifest>(read_manifest(path_))) {
  const auto& all = pieces();
  for (size_t i = 0; i < all.size(); ++i) {
    const auto [at, added] = tensors_.try_emplace(all[i].tensor(), Range{i, i + 1});
    if (!added) at->second.last = i + 1;
  }
  if (verify == Verify::contents) verify_contents();
}

CheckpointReader::~CheckpointReader() = default;

int64_t CheckpointReader::step() const {
  return manifest_->step;
}
const nlohmann::json& CheckpointReader::state() const {
  return manifest_->state;
}
const std::vector<StoredPiece>& CheckpointReader::pieces() const {
  return manifest_->pieces;
}

void CheckpointReader::verify_contents(int64_t part, int64_t num_parts) const {
  MOESAIC_CHECK(part >= 0 && part < num_parts, "part {} of {}", part, num_parts);
  for (auto i = part; i < static_cast<int64_t>(manifest_->files.size()); i += num_parts) {
    const StoredFile& expected = manifest_->files[static_cast<size_t>(i)];
    const MappedFile file(path_ + "/" + expected.name);
    if (digest_of(file.bytes()) == expected.digest) continue;
    for (const StoredPiece& piece : pieces()) {
      require<IoError>(
          piece.file != i ||
              digest_of(file.range(piece.offset, piece.bytes(), piece.entry())) == piece.digest,
          "{}: the bytes of {} do not match their digest: the file is damaged; resume from another "
          "checkpoint",
          file.path(), piece.entry());
    }
    fail<IoError>(
        "{}: its header does not match its digest: the file is damaged; resume from another checkpoint",
        file.path());
  }
}

void CheckpointReader::load(std::span<const PieceToLoad> wanted, Conversion conversion) const {
  std::map<int64_t, MappedFile> open;  // files touched by this call
  const auto bytes_of = [&](const StoredPiece& piece) {
    auto at = open.find(piece.file);
    if (at == open.end()) {
      at = open.emplace(piece.file,
                        MappedFile(path_ + "/" + manifest_->files[static_cast<size_t>(piece.file)].name))
               .first;
    }
    return at->second.range(piece.offset, piece.bytes(), piece.entry());
  };
  for (const PieceToLoad& want : wanted) {
    check_piece(want, path_);
    const auto found = tensors_.find(want.tensor());
    require<IoError>(found != tensors_.end(),
                     "{} has no tensor {}: the model or the optimizer is another one", path_, want.tensor());
    const auto [first, last] = found->second;
    check_same_tensor(pieces()[first], want, conversion, path_);
    const int64_t want_end = want.begin + want.count;
    int64_t filled = want.begin;  // elements [want.begin, filled) are there
    for (size_t i = first; i < last; ++i) {
      const StoredPiece& piece = pieces()[i];
      const int64_t begin = std::max(piece.begin, want.begin),
                    end = std::min(piece.begin + piece.count, want_end);
      if (begin >= end) continue;
      const Transfer transfer(piece, bytes_of(piece), want);
      const int64_t known = std::min(filled, end);
      require<IoError>(transfer.agrees(begin, known),
                       "{}: {}: elements {} to {} are stored twice with different values", path_,
                       want.tensor(), begin, known - 1);
      transfer.copy(known, end);
      filled = std::max(filled, end);
    }
    MOESAIC_CHECK(filled == want_end, "{}: {} of {}", want.tensor(), filled, want_end);
  }
}

}  // namespace moesaic

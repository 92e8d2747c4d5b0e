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

constexpr size_t kChunkBytes = size_t{1} << 20;

/// Digest of `count` bytes from `offset`.
std::string digest_in(const InputFile& file, int64_t offset, int64_t count, std::string_view what) {
  std::vector<std::byte> chunk(std::min(kChunkBytes, static_cast<size_t>(count)));
  Digest digest;
  for (int64_t done = 0; done < count;) {
    const std::span part(chunk.data(), std::min(chunk.size(), static_cast<size_t>(count - done)));
    file.read(offset + done, part, what);
    digest.update(part);
    done += static_cast<int64_t>(part.size());
  }
  return digest.hex();
}

/// Compares or copies elements [begin, end) of the tensor between a stored piece and a wanted one, in the
/// wanted type.
class Transfer {
 public:
  Transfer(const InputFile& file, const StoredPiece& from, const PieceToLoad& to)
      : file_(file), from_(from), to_(to) {}

  void copy(int64_t begin, int64_t end) const {
    if (begin < end && from_.dtype == to_.dtype) {
      const auto bytes = static_cast<size_t>((end - begin) * size_of(to_.dtype));
      file_.read(offset_of(begin), {wanted_at(begin), bytes}, from_.entry());
      return;
    }
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
  int64_t offset_of(int64_t element) const {
    return from_.offset + (element - from_.begin) * size_of(from_.dtype);
  }
  std::byte* wanted_at(int64_t element) const {
    return static_cast<std::byte*>(to_.data) + (element - to_.begin) * size_of(to_.dtype);
  }

  /// Calls f(wanted memory, stored values in the wanted type, bytes) part by part while it says true.
  template <class F>
  bool each_part(int64_t begin, int64_t end, F&& f) const {
    const auto most = static_cast<int64_t>(kChunkBytes) / size_of(from_.dtype);
    std::vector<std::byte> chunk(
        static_cast<size_t>(std::min(most, std::max<int64_t>(end - begin, 0)) * size_of(from_.dtype)));
    for (int64_t at = begin; at < end; at += most) {
      const int64_t count = std::min(most, end - at);
      const std::span stored(chunk.data(), static_cast<size_t>(count * size_of(from_.dtype)));
      file_.read(offset_of(at), stored, from_.entry());
      if (from_.dtype != to_.dtype) round_in_place(stored);
      if (!f(wanted_at(at), stored.data(), static_cast<size_t>(count * size_of(to_.dtype)))) return false;
    }
    return true;
  }
  /// f32 to bf16, packed at the front.
  static void round_in_place(std::span<std::byte> values) {
    for (size_t i = 0; i < values.size() / 4; ++i) {
      float value;
      std::memcpy(&value, values.data() + i * 4, 4);
      const bf16 rounded(value);
      std::memcpy(values.data() + i * 2, &rounded, 2);
    }
  }

  const InputFile& file_;
  const StoredPiece& from_;
  const PieceToLoad& to_;
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
    const InputFile file(path_ + "/" + expected.name);
    if (digest_in(file, 0, file.size(), "the shard") == expected.digest) continue;
    for (const StoredPiece& piece : pieces()) {
      require<IoError>(
          piece.file != i || digest_in(file, piece.offset, piece.bytes(), piece.entry()) == piece.digest,
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
  std::map<int64_t, InputFile> open;  // files touched by this call
  const auto file_of = [&](const StoredPiece& piece) -> const InputFile& {
    const auto at = open.find(piece.file);
    if (at != open.end()) return at->second;
    const std::string& name = manifest_->files[static_cast<size_t>(piece.file)].name;
    return open.emplace(piece.file, InputFile(path_ + "/" + name)).first->second;
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
      const Transfer transfer(file_of(piece), piece, want);
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

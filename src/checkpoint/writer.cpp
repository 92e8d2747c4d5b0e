#include "checkpoint/writer.h"

#include <algorithm>
#include <thread>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "checkpoint/digest.h"
#include "checkpoint/folder.h"
#include "checkpoint/safetensors.h"

namespace moesaic {
namespace {

constexpr size_t kBlockBytes = 512 << 10;  // that are digested and written while they lie in a core's cache

}  // namespace

CheckpointWriter::CheckpointWriter(std::string folder, int64_t step)
    : folder_(std::move(folder)),
      path_(folder_ + "/" + checkpoint_name(step)),
      unfinished_(unfinished_name(path_)),
      step_(step) {
  MOESAIC_CHECK(step >= 0, "step {}", step);
}

void CheckpointWriter::begin() const {
  make_folders(folder_);
  clean_checkpoints(folder_);
  make_folders(unfinished_);
}

ShardInfo CheckpointWriter::write_shard(int64_t rank, std::span<const PieceToSave> pieces) const {
  const std::vector<Piece> plain(pieces.begin(), pieces.end());
  return write_shard(rank, plain, [&](size_t i) {
    return std::span(static_cast<const std::byte*>(pieces[i].data), static_cast<size_t>(pieces[i].bytes()));
  });
}

ShardInfo CheckpointWriter::write_shard(
    int64_t rank, std::span<const Piece> pieces,
    const std::function<std::span<const std::byte>(size_t)>& bytes_of) const {
  ShardInfo info;
  info.file.name = fmt::format("rank_{:05}.safetensors", rank);
  const std::string path = unfinished_ + "/" + info.file.name;
  std::vector<StoredTensor> tensors;
  for (const Piece& piece : pieces) {
    check_piece(piece, path);
    // A piece that is a whole tensor keeps its shape, so that other tools can use the file.
    const bool whole = piece.begin == 0 && piece.count == checked_numel(piece.shape, path);
    tensors.push_back({piece.entry(), piece.dtype, whole ? piece.shape : std::vector<int64_t>{piece.count}});
  }
  SafetensorsWriter writer(path, tensors);
  Digest whole_file;
  whole_file.update(std::as_bytes(std::span(writer.header())));
  for (const size_t i : writer.order()) {
    Digest piece;
    for (std::span<const std::byte> bytes = bytes_of(i); !bytes.empty();) {
      const auto block = bytes.first(std::min(bytes.size(), kBlockBytes));
      piece.update(block);
      whole_file.update(block);
      writer.append(block);
      std::this_thread::yield();  // training on all cores waits for a block, not for a time slice
      bytes = bytes.subspan(block.size());
    }
    StoredPiece stored;
    static_cast<Piece&>(stored) = pieces[i];
    stored.offset = writer.tensors()[i].offset;
    stored.digest = piece.hex();
    info.pieces.push_back(std::move(stored));
  }
  writer.finish();
  info.file.size = file_size(path);
  info.file.digest = whole_file.hex();
  return info;
}

Manifest CheckpointWriter::publish(std::span<const ShardInfo> shards, const nlohmann::json& state) const {
  MOESAIC_CHECK(state.is_object(), "the state must be a JSON object");
  Manifest manifest;
  manifest.step = step_;
  manifest.state = state;
  for (const ShardInfo& shard : shards) {
    for (const StoredPiece& piece : shard.pieces) {
      manifest.pieces.push_back(piece);
      manifest.pieces.back().file = static_cast<int64_t>(manifest.files.size());
    }
    manifest.files.push_back(shard.file);
  }
  sort_and_check_cover(manifest.pieces, unfinished_);
  AtomicFile file(unfinished_ + "/" + kManifestName);
  file.write(encode_manifest(manifest));
  file.commit();
  check_files(manifest, unfinished_);  // finds a shard that another machine wrote to its own disk

  if (path_exists(path_)) {
    // At every moment one of the two has a name that counts.
    rename_path(path_, replaced_name(path_));
    rename_path(unfinished_, path_);
    remove_checkpoint(replaced_name(path_));
  } else {
    rename_path(unfinished_, path_);
  }
  return manifest;
}

}  // namespace moesaic

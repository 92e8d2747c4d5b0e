#pragma once
// manifest.json: what makes a folder of shards a checkpoint. Format: docs/formats/checkpoint.md.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/piece.h"

namespace moesaic {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr int64_t kManifestVersion = 1;

struct StoredFile {
  std::string name;  // in the checkpoint's folder
  int64_t size = 0;  // bytes
  std::string digest;
};

/// What a rank tells about the shard it wrote. piece.file is not set yet.
struct ShardInfo {
  StoredFile file;
  std::vector<StoredPiece> pieces;
};

struct Manifest {
  int64_t step = 0;
  nlohmann::json state;  // an object of the caller's
  std::vector<StoredFile> files;
  std::vector<StoredPiece> pieces;  // sorted by tensor, then begin; they cover each tensor
};

std::string encode_shard_info(const ShardInfo& info);
/// IoError if the text is not from encode_shard_info.
ShardInfo decode_shard_info(std::string_view text, const std::string& where);

/// The text begins with a digest of the rest.
std::string encode_manifest(const Manifest& manifest);
/// IoError, beginning with `where`, unless the digest fits, the version is known, and every number is
/// consistent with the others: file names are plain, each piece lies inside its file, each tensor is covered.
Manifest decode_manifest(std::string_view text, const std::string& where);
/// Checks that each file that the manifest names is in `folder` with the right size.
void check_files(const Manifest& manifest, const std::string& folder);
/// Reads <folder>/manifest.json, and checks its files.
Manifest read_manifest(const std::string& folder);

}  // namespace moesaic

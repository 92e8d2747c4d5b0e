#include "checkpoint/manifest.h"

#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/digest.h"
#include "checkpoint/safetensors.h"

namespace moesaic {
namespace {

using nlohmann::json;

constexpr int64_t kMaxManifestBytes = int64_t{1} << 30;
constexpr const char* kFormat = "moesaic-checkpoint";

// The first line of a manifest, and the digest in it.
std::string first_line(std::string_view rest) {
  return fmt::format("{{\"xxh3_128\": \"{}\",\n", digest_of(std::as_bytes(std::span(rest))));
}

json encode_file(const StoredFile& file) {
  return {{"name", file.name}, {"size", file.size}, {"xxh3_128", file.digest}};
}

StoredFile decode_file(const json& from, const std::string& where) {
  StoredFile file{string_member(from, "name", where), int_member(from, "size", where),
                  string_member(from, "xxh3_128", where)};
  require<IoError>(!file.name.empty() && file.name[0] != '.' && file.name.find('/') == std::string::npos &&
                       file.name.find('\0') == std::string::npos,
                   "{}: \"{}\" is not the name of a file in the checkpoint's folder", where, file.name);
  return file;
}

json encode_piece(const StoredPiece& piece) {
  return {{"kind", piece.kind},   {"name", piece.name},     {"dtype", safetensors_name(piece.dtype)},
          {"shape", piece.shape}, {"begin", piece.begin},   {"count", piece.count},
          {"file", piece.file},   {"offset", piece.offset}, {"xxh3_128", piece.digest}};
}

StoredPiece decode_piece(const json& from, const std::string& where) {
  StoredPiece piece;
  piece.kind = string_member(from, "kind", where);
  piece.name = string_member(from, "name", where);
  piece.dtype = dtype_named(string_member(from, "dtype", where), where);
  piece.shape = ints_member(from, "shape", where);
  piece.begin = int_member(from, "begin", where);
  piece.count = int_member(from, "count", where);
  piece.file = int_member(from, "file", where);
  piece.offset = int_member(from, "offset", where);
  piece.digest = string_member(from, "xxh3_128", where);
  check_piece(piece, where);
  return piece;
}

json encode_pieces(const std::vector<StoredPiece>& pieces) {
  json list = json::array();
  for (const StoredPiece& piece : pieces) list.push_back(encode_piece(piece));
  return list;
}

std::vector<StoredPiece> decode_pieces(const json& from, const std::string& where) {
  std::vector<StoredPiece> pieces;
  for (const json& piece : array_member(from, "pieces", where)) pieces.push_back(decode_piece(piece, where));
  return pieces;
}

/// ", from <tensor> on": the first tensor that a file cut to `size` bytes does not hold whole.
std::string first_lost(const Manifest& manifest, int64_t file, int64_t size) {
  const StoredPiece* first = nullptr;
  for (const StoredPiece& piece : manifest.pieces) {
    if (piece.file == file && piece.offset + piece.bytes() > size &&
        (first == nullptr || piece.offset < first->offset))
      first = &piece;
  }
  return first == nullptr ? "" : fmt::format(", from {} on", first->entry());
}

}  // namespace

std::string encode_shard_info(const ShardInfo& info) {
  return to_text({{"file", encode_file(info.file)}, {"pieces", encode_pieces(info.pieces)}}, info.file.name);
}

ShardInfo decode_shard_info(std::string_view text, const std::string& where) {
  const json from = parse_json(text, where);
  return {decode_file(member(from, "file", where), where), decode_pieces(from, where)};
}

std::string encode_manifest(const Manifest& manifest) {
  json files = json::array();
  for (const StoredFile& file : manifest.files) files.push_back(encode_file(file));
  const json body = {{"format", kFormat},     {"version", kManifestVersion},
                     {"step", manifest.step}, {"state", manifest.state},
                     {"files", files},        {"pieces", encode_pieces(manifest.pieces)}};
  const std::string rest = to_text(body, kManifestName).substr(1) + "\n";
  return first_line(rest) + rest;
}

Manifest decode_manifest(std::string_view text, const std::string& where) {
  const size_t line_end = text.find('\n');
  require<IoError>(
      line_end != std::string_view::npos &&
          text.substr(0, line_end + 1) == first_line(text.substr(line_end + 1)),
      "{}: the digest in its first line does not match the rest: the file is damaged or was edited", where);
  const json root = parse_json(text, where);
  require<IoError>(string_member(root, "format", where) == kFormat, "{}: not the manifest of a checkpoint",
                   where);
  const int64_t version = int_member(root, "version", where);
  require<IoError>(
      version == kManifestVersion,
      "{}: the checkpoint has format version {}, but this program reads version {}: use the program that "
      "wrote it, or a newer one",
      where, version, kManifestVersion);
  Manifest manifest;
  manifest.step = int_member(root, "step", where);
  manifest.state = member(root, "state", where);
  require<IoError>(manifest.state.is_object(), "{}: \"state\" must be an object", where);
  std::set<std::string> names;
  for (const json& entry : array_member(root, "files", where)) {
    manifest.files.push_back(decode_file(entry, where));
    require<IoError>(names.insert(manifest.files.back().name).second, "{}: file {} is listed twice", where,
                     manifest.files.back().name);
  }
  manifest.pieces = decode_pieces(root, where);
  for (const StoredPiece& piece : manifest.pieces) {
    require<IoError>(piece.file < static_cast<int64_t>(manifest.files.size()), "{}: {} lies in file {} of {}",
                     where, piece.entry(), piece.file, manifest.files.size());
    const StoredFile& file = manifest.files[static_cast<size_t>(piece.file)];
    require<IoError>(piece.offset <= file.size && piece.bytes() <= file.size - piece.offset,
                     "{}: {} needs {} bytes at {} of {}, which has {}", where, piece.entry(), piece.bytes(),
                     piece.offset, file.name, file.size);
  }
  sort_and_check_cover(manifest.pieces, where);
  return manifest;
}

void check_files(const Manifest& manifest, const std::string& folder) {
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    const StoredFile& file = manifest.files[i];
    const std::string shard = folder + "/" + file.name;
    const int64_t size = file_size(shard);
    require<IoError>(size == file.size,
                     "{} has {} bytes, but the checkpoint's manifest says {}: it is cut short or "
                     "damaged{}",
                     shard, size, file.size, first_lost(manifest, static_cast<int64_t>(i), size));
  }
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + kManifestName;
  Manifest manifest = decode_manifest(read_file(path, kMaxManifestBytes), path);
  check_files(manifest, folder);
  return manifest;
}

}  // namespace moesaic

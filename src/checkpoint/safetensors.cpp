#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"

namespace moesaic {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the bound of the format's reference implementation
constexpr int64_t kAlignment = 64;                // of the first tensor in our files; the format asks for 8
constexpr size_t kMaxDims = 8;
constexpr const char* kMetadata = "__metadata__";

StoredTensor parse_tensor(const std::string& name, const json& entry, int64_t data_at, int64_t data_bytes,
                          const std::string& path) {
  const std::string where = fmt::format("{}: tensor {}", path, name);
  StoredTensor tensor{name, dtype_named(string_member(entry, "dtype", where), where),
                      ints_member(entry, "shape", where)};
  const auto offsets = ints_member(entry, "data_offsets", where);
  require<IoError>(
      offsets.size() == 2 && offsets[0] <= offsets[1] && offsets[1] <= data_bytes,
      "{}: data_offsets must be a begin and an end within the {} bytes of data: the file is cut short or "
      "damaged",
      where, data_bytes);
  tensor.bytes = checked_numel(tensor.shape, where) * size_of(tensor.dtype);
  tensor.offset = data_at + offsets[0];
  require<IoError>(offsets[1] - offsets[0] == tensor.bytes,
                   "{}: dtype and shape need {} bytes, but data_offsets give {}", where, tensor.bytes,
                   offsets[1] - offsets[0]);
  return tensor;
}

}  // namespace

std::string_view safetensors_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    case DType::u16:
      return "U16";
    case DType::i32:
      return "I32";
    case DType::i64:
      return "I64";
    case DType::u8:
      return "U8";
  }
  MOESAIC_CHECK(false, "{}", static_cast<int>(dtype));
}

DType dtype_named(std::string_view name, const std::string& where) {
  for (const DType type :
       {DType::f32, DType::bf16, DType::f16, DType::u16, DType::i32, DType::i64, DType::u8}) {
    if (safetensors_name(type) == name) return type;
  }
  fail<IoError>("{}: type {} is not one of F32, BF16, F16, U16, I32, I64, U8", where, name);
}

int64_t checked_numel(std::span<const int64_t> shape, const std::string& where) {
  require<IoError>(shape.size() <= kMaxDims, "{}: {} dims, but at most {} are allowed", where, shape.size(),
                   kMaxDims);
  int64_t numel = 1;
  for (const int64_t extent : shape) {
    require<IoError>(extent >= 0, "{}: negative extent {}", where, extent);
    require<IoError>(extent == 0 || numel <= std::numeric_limits<int64_t>::max() / 8 / extent,
                     "{}: the shape [{}] has more elements than 64 bits can count", where,
                     fmt::join(shape, ", "));
    numel *= extent;
  }
  return numel;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  uint64_t announced = 0;
  file_.read(0, std::as_writable_bytes(std::span(&announced, 1)), "the length of a safetensors header");
  require<IoError>(
      announced <= static_cast<uint64_t>(kMaxHeaderBytes),
      "{}: a header of {} bytes is announced, more than the {} allowed: damaged, or not a safetensors file",
      path, announced, kMaxHeaderBytes);
  const auto header_bytes = static_cast<int64_t>(announced);
  require<IoError>(
      header_bytes <= file_.size() - 8,
      "{}: a header of {} bytes is announced, but the file has {} bytes: cut, or not a safetensors file",
      path, header_bytes, file_.size());
  std::string header(announced, '\0');
  file_.read(8, std::as_writable_bytes(std::span(header)), "the safetensors header");
  const json root = parse_json(header, path);
  require<IoError>(root.is_object(), "{}: the safetensors header must be a JSON object", path);

  const int64_t data_at = 8 + header_bytes;
  for (const auto& [name, entry] : root.items()) {
    if (name != kMetadata) {
      tensors_.push_back(parse_tensor(name, entry, data_at, file_.size() - data_at, path));
      continue;
    }
    require<IoError>(entry.is_object(), "{}: {} must be an object of strings", path, kMetadata);
    for (const auto& [key, value] : entry.items()) {
      require<IoError>(value.is_string(), "{}: {} must be an object of strings", path, kMetadata);
      metadata_[key] = value.get<std::string>();
    }
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  int64_t at = data_at;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    require<IoError>(tensors_[i].offset == at,
                     "{}: tensor {} begins at byte {}, but the one before it ends at {}: gaps "
                     "and overlaps are not allowed",
                     path, tensors_[i].name, tensors_[i].offset, at);
    at += tensors_[i].bytes;
    by_name_[tensors_[i].name] = i;
  }
  require<IoError>(at == file_.size(), "{}: the tensors end at byte {}, but the file has {} bytes", path, at,
                   file_.size());
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const StoredTensor& SafetensorsFile::get(std::string_view name) const {
  const StoredTensor* tensor = find(name);
  require<IoError>(tensor != nullptr, "{} has no tensor {}", path(), name);
  return *tensor;
}

std::vector<std::byte> SafetensorsFile::data(const StoredTensor& tensor) const {
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes));
  file_.read(tensor.offset, bytes, tensor.name);
  return bytes;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<StoredTensor> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : tensors_(std::move(tensors)), order_(tensors_.size()), file_(path, Caching::direct) {
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
    return size_of(tensors_[a].dtype) > size_of(tensors_[b].dtype);
  });
  json root = json::object();
  if (!metadata.empty()) root[kMetadata] = metadata;
  for (const size_t i : order_) {
    StoredTensor& tensor = tensors_[i];
    const std::string where = fmt::format("{}: tensor {}", path, tensor.name);
    require<IoError>(tensor.name != kMetadata && !root.contains(tensor.name),
                     "{}: the name occurs twice or is reserved", where);
    tensor.bytes = checked_numel(tensor.shape, where) * size_of(tensor.dtype);
    require<IoError>(tensor.bytes <= std::numeric_limits<int64_t>::max() / 2 - total_bytes_,
                     "{}: the file would pass "
                     "2^62 bytes",
                     where);
    tensor.offset = total_bytes_;
    total_bytes_ += tensor.bytes;
    root[tensor.name] = {{"dtype", safetensors_name(tensor.dtype)},
                         {"shape", tensor.shape},
                         {"data_offsets", {tensor.offset, total_bytes_}}};
  }
  const std::string text = to_text(root, path);
  const auto header_bytes = round_up(static_cast<int64_t>(text.size()) + 8, kAlignment) - 8;
  require<IoError>(header_bytes <= kMaxHeaderBytes,
                   "{}: {} tensors need a header of {} bytes, more than the {} allowed", path,
                   tensors_.size(), header_bytes, kMaxHeaderBytes);
  header_.assign(reinterpret_cast<const char*>(&header_bytes), 8);
  header_ += text;
  header_.append(static_cast<size_t>(8 + header_bytes) - header_.size(), ' ');
  for (StoredTensor& tensor : tensors_) tensor.offset += 8 + header_bytes;
  total_bytes_ += 8 + header_bytes;
  file_.write(header_);
}

void SafetensorsWriter::finish() {
  MOESAIC_CHECK(file_.size() == total_bytes_, "{} of {} bytes", file_.size(), total_bytes_);
  file_.commit();
}

}  // namespace moesaic

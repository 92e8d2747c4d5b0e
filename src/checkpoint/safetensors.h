#pragma once
// Safetensors files: named arrays of one type and shape each, behind a JSON header. Files from anywhere are
// read, with every number in the header checked against the file before use; what is written any safetensors
// library reads. Byte layout: docs/formats/checkpoint.md.
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"

namespace moesaic {

/// The format's names, "F32", "BF16", "F16", "U16", "I32", "I64", "U8". dtype_named throws IoError for others.
std::string_view safetensors_name(DType dtype);
DType dtype_named(std::string_view name, const std::string& where);
/// Product of the extents; IoError beginning with `where` for more than 8 dims, a negative extent, or a
/// product whose bytes pass 2^63.
int64_t checked_numel(std::span<const int64_t> shape, const std::string& where);

struct StoredTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;  // up to 8 dims; none = a scalar
  int64_t offset = 0;          // of the first byte, from the start of the file
  int64_t bytes = 0;
};

/// A safetensors file opened for reading. Threads may share it.
class SafetensorsFile {
 public:
  /// Throws IoError if the file is missing, damaged, or holds a type that Moesaic has not.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  /// In file order.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// The free strings of the header ("__metadata__").
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Null if there is none of that name.
  const StoredTensor* find(std::string_view name) const;
  /// IoError if there is none of that name.
  const StoredTensor& get(std::string_view name) const;
  /// The tensor's bytes, little-endian, row-major. IoError when the file cannot be read or was cut.
  std::vector<std::byte> data(const StoredTensor& tensor) const;

 private:
  InputFile file_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
};

/// Writes a safetensors file of any size without holding it: the tensors are named first, their bytes follow.
/// The file is not there before finish().
///
///   SafetensorsWriter writer(path, {{.name = "a", .dtype = DType::f32, .shape = {2, 3}}, ...});
///   for (size_t i : writer.order()) writer.append(bytes of tensor i);
///   writer.finish();
class SafetensorsWriter {
 public:
  /// Of each tensor, name, dtype and shape count; offset and bytes are set here. IoError for a name that
  /// occurs twice.
  SafetensorsWriter(const std::string& path, std::vector<StoredTensor> tensors,
                    const std::map<std::string, std::string>& metadata = {});

  /// As given, with offset and bytes.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Indices into tensors() in the order in which the bytes must come: large elements first, so that each is
  /// aligned.
  const std::vector<size_t>& order() const { return order_; }
  /// The bytes of the file before the first tensor, already written.
  const std::string& header() const { return header_; }
  /// The next bytes; a tensor may come in several parts.
  void append(std::span<const std::byte> bytes) { file_.write(bytes); }
  /// Publishes the file. Requires that exactly the bytes announced were appended.
  void finish();

 private:
  std::vector<StoredTensor> tensors_;
  std::vector<size_t> order_;
  std::string header_;
  int64_t total_bytes_ = 0;
  AtomicFile file_;
};

}  // namespace moesaic

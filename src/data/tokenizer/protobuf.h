#pragma once
// Protocol Buffers' wire format, read field by field. libprotobuf itself would clash with the copy inside other
// libraries, and one message type is all that is read.
// Source: https://protobuf.dev/programming-guides/encoding/
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace moesaic {

class ProtobufReader {
 public:
  struct Field {
    uint32_t number = 0;
    enum class Kind { varint, fixed64, bytes, fixed32 } kind = Kind::varint;
    uint64_t value = 0;      // of varint, fixed64 and fixed32
    std::string_view bytes;  // of bytes: a string or a message

    bool as_bool() const { return value != 0; }
    int32_t as_int() const { return static_cast<int32_t>(value); }
    float as_float() const { return std::bit_cast<float>(static_cast<uint32_t>(value)); }
  };

  /// `message` must outlive the reader and its fields; `where` begins every error.
  ProtobufReader(std::string_view message, const std::string& where) : left_(message), where_(where) {}

  /// The next field, in the order of the file; false at the end. IoError for what is no message: cut off, groups,
  /// numbers of more than 64 bits.
  bool next(Field& field);

 private:
  uint64_t varint();
  uint64_t fixed(size_t size);

  std::string_view left_;
  const std::string& where_;
};

}  // namespace moesaic

#include "data/tokenizer/protobuf.h"

#include "base/error.h"

namespace moesaic {

uint64_t ProtobufReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    require<IoError>(!left_.empty(), "{} ends within a number", where_);
    const auto byte = static_cast<unsigned char>(left_.front());
    left_.remove_prefix(1);
    require<IoError>(shift < 63 || byte <= 1, "{} has a number of more than 64 bits", where_);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  fail<IoError>("{} has a number without an end", where_);
}

uint64_t ProtobufReader::fixed(size_t size) {
  require<IoError>(left_.size() >= size, "{} ends within a number", where_);
  uint64_t value = 0;
  for (size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(left_[i]);
  left_.remove_prefix(size);
  return value;
}

bool ProtobufReader::next(Field& field) {
  if (left_.empty()) return false;
  const uint64_t tag = varint();
  require<IoError>(tag >> 3 >= 1 && tag >> 3 < uint64_t{1} << 29, "{} has a field without a number", where_);
  field = {};
  field.number = static_cast<uint32_t>(tag >> 3);
  switch (tag & 7) {
    case 0:
      field.kind = Field::Kind::varint;
      field.value = varint();
      return true;
    case 1:
      field.kind = Field::Kind::fixed64;
      field.value = fixed(8);
      return true;
    case 2: {
      field.kind = Field::Kind::bytes;
      const uint64_t size = varint();
      require<IoError>(size <= left_.size(), "{} ends within a field of {} bytes", where_, size);
      field.bytes = left_.substr(0, size);
      left_.remove_prefix(size);
      return true;
    }
    case 5:
      field.kind = Field::Kind::fixed32;
      field.value = fixed(4);
      return true;
    default:
      fail<IoError>("{} has a field of type {}, which no tokenizer has", where_, tag & 7);
  }
}

}  // namespace moesaic

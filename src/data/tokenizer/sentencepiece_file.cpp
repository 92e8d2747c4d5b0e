#include "data/tokenizer/sentencepiece_file.h"

#include <fmt/format.h>

#include <cmath>
#include <unordered_map>

#include "base/error.h"
#include "data/tokenizer/protobuf.h"
#include "data/tokenizer/utf8.h"

namespace moesaic {
namespace {

using Field = ProtobufReader::Field;
using Type = SentencePieceFile::Type;

constexpr size_t kMaxPieceText = 512;  // bytes
constexpr size_t kMaxPieces = size_t{1} << 24;

/// Calls visit(field) for each field of a message.
template <class Visit>
void for_each_field(std::string_view message, const std::string& where, Visit&& visit) {
  ProtobufReader reader(message, where);
  Field field;
  while (reader.next(field)) visit(field);
}

/// A field of the kind that its number has in the format.
const Field& expect(const Field& field, Field::Kind kind, const std::string& where) {
  require<IoError>(field.kind == kind, "{}: field {} has another type than the format says", where,
                   field.number);
  return field;
}
std::string_view bytes_of(const Field& field, const std::string& where) {
  return expect(field, Field::Kind::bytes, where).bytes;
}
bool bool_of(const Field& field, const std::string& where) {
  return expect(field, Field::Kind::varint, where).as_bool();
}
int32_t int_of(const Field& field, const std::string& where) {
  return expect(field, Field::Kind::varint, where).as_int();
}

SentencePieceFile::Piece read_piece(std::string_view message, const std::string& where) {
  SentencePieceFile::Piece piece;
  for_each_field(message, where, [&](const Field& field) {
    if (field.number == 1) {
      piece.text = bytes_of(field, where);
    } else if (field.number == 2) {
      piece.score = expect(field, Field::Kind::fixed32, where).as_float();
    } else if (field.number == 3) {
      const int32_t type = int_of(field, where);
      require<IoError>(type >= 1 && type <= 6, "{}: a piece of the unknown type {}", where, type);
      piece.type = static_cast<Type>(type);
    }
  });
  return piece;
}

void read_trainer(std::string_view message, SentencePieceFile& file, const std::string& where) {
  int32_t model_type = 1;  // what the format says when nothing is said
  for_each_field(message, where, [&](const Field& field) {
    switch (field.number) {
      case 3:
        model_type = int_of(field, where);
        break;
      case 24:
        file.whitespace_as_suffix = bool_of(field, where);
        break;
      case 35:
        file.byte_fallback = bool_of(field, where);
        break;
      case 40:
        file.unk_id = int_of(field, where);
        break;
      case 42:
        file.end_id = int_of(field, where);
        break;
      case 44:
        file.unk_surface = bytes_of(field, where);
        break;
      default:
        break;  // how it was trained
    }
  });
  constexpr std::string_view kNames[] = {"unigram", "bpe", "word", "char"};
  require<ConfigError>(model_type == 2, "{}: a SentencePiece model of type {}; only bpe is supported", where,
                       model_type >= 1 && model_type <= 4 ? kNames[model_type - 1] : "unknown");
}

void read_normalizer(std::string_view message, SentencePieceFile& file, const std::string& where) {
  for_each_field(message, where, [&](const Field& field) {
    switch (field.number) {
      case 2:
        file.charsmap = bytes_of(field, where);
        break;
      case 3:
        file.add_dummy_prefix = bool_of(field, where);
        break;
      case 4:
        file.remove_extra_whitespaces = bool_of(field, where);
        break;
      case 5:
        file.escape_whitespaces = bool_of(field, where);
        break;
      default:
        break;  // its name, and the rules that the charsmap was made of
    }
  });
}

void refuse_denormalizer(std::string_view message, const std::string& where) {
  for_each_field(message, where, [&](const Field& field) {
    require<ConfigError>(field.number != 2 || bytes_of(field, where).empty(),
                         "{}: a denormalizer is not supported", where);
  });
}

void check(const SentencePieceFile& file, const std::string& where) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const auto& [text, score, type] = file.pieces[id];
    require<IoError>(!text.empty() && text.size() <= kMaxPieceText,
                     "{}: piece {} has {} bytes; 1 to {} are supported", where, id, text.size(),
                     kMaxPieceText);
    require<IoError>(utf8::valid_length(text) == text.size(), "{}: piece {} is not UTF-8", where, id);
    require<IoError>(!std::isnan(score), "{}: the score of piece {} is not a number", where, id);
    require<ConfigError>(type != Type::unused, "{}: piece {} is of type unused, which is not supported",
                         where, id);
    const auto [other, is_new] = ids.emplace(text, id);
    require<IoError>(is_new, "{}: pieces {} and {} have the same text", where, other->second, id);
  }
  const auto size = static_cast<int64_t>(file.pieces.size());
  require<IoError>(file.unk_id >= 0 && file.unk_id < size &&
                       file.pieces[static_cast<size_t>(file.unk_id)].type == Type::unknown,
                   "{}: piece {} must be the unknown one", where, file.unk_id);
  require<IoError>(file.end_id < size, "{}: the end of a sentence is piece {} of {}", where, file.end_id,
                   size);
  if (!file.byte_fallback) return;
  for (int b = 0; b < 256; ++b) {
    const auto id = ids.find(byte_piece(b));
    require<IoError>(id != ids.end() && file.pieces[id->second].type == Type::byte,
                     "{}: byte fallback is on, but the piece {} is missing", where, byte_piece(b));
  }
}

}  // namespace

std::string byte_piece(int byte) {
  return fmt::format("<0x{:02X}>", byte);
}

SentencePieceFile parse_sentencepiece_file(std::string_view bytes, const std::string& where) {
  SentencePieceFile file;
  std::string_view trainer;
  for_each_field(bytes, where, [&](const Field& field) {
    switch (field.number) {
      case 1:
        require<IoError>(file.pieces.size() < kMaxPieces, "{} has too many pieces", where);
        file.pieces.push_back(read_piece(bytes_of(field, where), where));
        break;
      case 2:
        trainer = bytes_of(field, where);
        break;
      case 3:
        read_normalizer(bytes_of(field, where), file, where);
        break;
      case 5:
        refuse_denormalizer(bytes_of(field, where), where);
        break;
      default:
        break;  // self-test samples, extensions
    }
  });
  require<IoError>(!file.pieces.empty(), "{} is not a SentencePiece model: it has no pieces", where);
  read_trainer(trainer, file, where);
  check(file, where);
  return file;
}

}  // namespace moesaic

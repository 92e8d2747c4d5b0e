#pragma once
// What a SentencePiece .model says, as values: the parts of ModelProto that encoding and decoding need.
// Source of field numbers: sentencepiece_model.proto of github.com/google/sentencepiece.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moesaic {

struct SentencePieceFile {
  enum class Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::normal;
  };
  std::vector<Piece> pieces;  // by id
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  int32_t unk_id = 0, end_id = 2;  // end_id -1: none
  std::string unk_surface = " \xE2\x81\x87 ";
  std::string charsmap;  // how characters are normalised (charsmap.h); empty: not at all
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

/// IoError for a damaged file; ConfigError naming what is not supported: types but BPE, unused pieces, denormalisers.
/// Messages begin with `where`. What comes back is consistent: texts are UTF-8, not empty, and each occurs once;
/// scores are numbers; unk_id is a piece; with byte_fallback, all 256 byte pieces are there.
SentencePieceFile parse_sentencepiece_file(std::string_view bytes, const std::string& where);

/// "<0x00>" to "<0xFF>".
std::string byte_piece(int byte);

}  // namespace moesaic

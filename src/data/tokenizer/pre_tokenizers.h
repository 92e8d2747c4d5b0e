#pragma once
// The "pre_tokenizer" of a tokenizer.json: text to pieces that the model sees one by one.
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/tokenizer/regex.h"

namespace moesaic {

/// Text and its pieces, in order; none is empty, and what lies between them is dropped.
struct Pieces {
  std::string text;
  std::vector<TextRange> ranges;
  bool at_start = true;  // text begins where the document does

  // Working memory of the steps.
  std::string next_text;
  std::vector<TextRange> next, found;
};

class PreTokenizers {
 public:
  /// value: null, or a component with a "type". ConfigError naming a type that is not supported, IoError for a
  /// damaged one; both begin with `where`.
  PreTokenizers(const nlohmann::json& value, const std::string& where);

  /// Whether the last step writes text in the byte alphabet. It is left to the model, which takes bytes instead,
  /// unless write_bytes() was called.
  bool ends_in_bytes() const { return ends_in_bytes_; }
  void write_bytes();

  /// Cuts the ranges further; text may be rewritten on the way.
  void apply(Pieces& pieces) const;

 private:
  void add(const nlohmann::json& value, const std::string& where);
  void add_step(std::function<void(Pieces&)> step);

  std::vector<std::function<void(Pieces&)>> steps_;  // in order
  bool ends_in_bytes_ = false;
};

}  // namespace moesaic

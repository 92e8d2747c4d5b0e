#pragma once
// Plain-text tables with aligned columns, for `inspect`, the memory table and the benches.
#include <string>
#include <vector>

namespace moesaic {

class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };

  explicit Table(std::vector<Column> columns);

  /// One cell per column; a cell holds no newline.
  void add_row(std::vector<std::string> cells);
  /// A line across, for example above the totals.
  void add_rule();

  /// Title line, rule, rows; two spaces between columns, no blanks at line ends. Widths count UTF-8
  /// characters.
  std::string str() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a rule
};

}  // namespace moesaic

#include "report/table.h"

#include <algorithm>

#include "base/check.h"

namespace moesaic {
namespace {

// Characters, not bytes: UTF-8 continuation bytes are 10xxxxxx.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  MOESAIC_CHECK(!columns_.empty(), "a table without columns");
}

void Table::add_row(std::vector<std::string> cells) {
  MOESAIC_CHECK(cells.size() == columns_.size(), "{} cells for {} columns", cells.size(), columns_.size());
  rows_.push_back(std::move(cells));
}

void Table::add_rule() {
  rows_.emplace_back();
}

std::string Table::str() const {
  std::vector<std::string> titles;
  std::vector<size_t> widths;
  size_t total = 2 * (columns_.size() - 1);
  for (size_t i = 0; i < columns_.size(); ++i) {
    titles.push_back(columns_[i].title);
    size_t width = width_of(titles[i]);
    for (const auto& row : rows_)
      if (!row.empty()) width = std::max(width, width_of(row[i]));
    widths.push_back(width);
    total += width;
  }
  const std::string rule = std::string(total, '-') + '\n';
  std::string text;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) line += "  ";
      const std::string blanks(widths[i] - width_of(cells[i]), ' ');
      line += columns_[i].align == Align::right ? blanks + cells[i] : cells[i] + blanks;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  add_line(titles);
  text += rule;
  for (const auto& row : rows_) {
    if (row.empty()) {
      text += rule;
    } else {
      add_line(row);
    }
  }
  return text;
}

}  // namespace moesaic

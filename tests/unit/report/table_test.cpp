#include "report/table.h"

#include <gtest/gtest.h>

namespace moesaic {
namespace {

using Align = Table::Align;

TEST(Table, AlignsColumnsAndLeavesNoBlanksAtLineEnds) {
  Table table({{"purpose"}, {"bytes", Align::right}, {"note"}});
  table.add_row({"parameters", "4096", ""});
  table.add_row({"arena", "12", "static"});
  table.add_rule();
  table.add_row({"total", "4108", "x"});
  EXPECT_EQ(table.str(),
            "purpose     bytes  note\n"
            "-------------------------\n"
            "parameters   4096\n"
            "arena          12  static\n"
            "-------------------------\n"
            "total        4108  x\n");
}

TEST(Table, WidthsCountCharactersNotBytes) {
  Table table({{"time", Align::right}, {"op"}});
  table.add_row({"12 µs", "a"});
  table.add_row({"123 s", "b"});
  EXPECT_EQ(table.str(), " time  op\n---------\n12 µs  a\n123 s  b\n");
}

TEST(TableDeathTest, ARowOfTheWrongWidthIsOurBug) {
  Table table({{"a"}, {"b"}});
  EXPECT_DEATH(table.add_row({"1"}), "1 cells for 2 columns");
}

}  // namespace
}  // namespace moesaic

#include "report/page/markup.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace moesaic {
namespace {

TEST(HtmlText, NothingCanOpenATagOrLeaveAnAttribute) {
  EXPECT_EQ(html_text("<script>alert('1')</script> & \"x\""),
            "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp; &quot;x&quot;");
  EXPECT_EQ(html_text("plain\ttext\n"), "plain\ttext\n");
}

TEST(HtmlText, KeepsUtf8AndReplacesWhatIsNone) {
  const std::string mark = "\xef\xbf\xbd";
  EXPECT_EQ(html_text("é€😀"), "é€😀");
  EXPECT_EQ(html_text(std::string("a\0b\x7f", 4)), "a" + mark + "b" + mark);
  EXPECT_EQ(html_text("\xff<"), mark + "&lt;");
  EXPECT_EQ(html_text("\xe2\x82"), mark + mark);             // cut short
  EXPECT_EQ(html_text("\xc0\xbc"), mark + mark);             // an overlong '<'
  EXPECT_EQ(html_text("\xe0\x80\xbc"), mark + mark + mark);  // another
  EXPECT_EQ(html_text("\xed\xa0\x80"), mark + mark + mark);  // a surrogate
  EXPECT_EQ(html_text("\xf4\x90\x80\x80"), mark + mark + mark + mark);
}

TEST(JsonInHtml, CannotEndItsElementAndReadsBackTheSame) {
  const nlohmann::ordered_json value{{"name", "</script><!-- <script>&amp;"}, {"x", {1, 2.5, nullptr}}};
  const std::string text = json_in_html(value);
  EXPECT_EQ(text.find_first_of("<>&"), std::string::npos);
  EXPECT_EQ(nlohmann::ordered_json::parse(text), value);
  EXPECT_EQ(json_in_html("\xff"), "\"\xef\xbf\xbd\"");
}

TEST(RunClass, ColoursRepeatDashed) {
  EXPECT_EQ(run_class(0), "r0");
  EXPECT_EQ(run_class(6), "r6");
  EXPECT_EQ(run_class(7), "r0 again");
}

}  // namespace
}  // namespace moesaic

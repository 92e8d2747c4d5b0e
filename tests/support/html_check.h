#pragma once
// A strict reader of HTML as our page writes it: every element closed in order, every attribute quoted, no bare < or & in
// text. Much of what a browser would forgive is an error here.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace moesaic::test {

class HtmlCheck {
 public:
  std::string problem;                  // "" when the page is well-formed
  std::map<std::string, int> elements;  // how often each occurs
  std::map<std::string, std::string>
      raw;                           // contents of the last script or style, by "script" or "script <type>"
  std::set<std::string> attributes;  // all names

  explicit HtmlCheck(std::string_view page) : rest_(page) {
    constexpr std::string_view kDoctype = "<!DOCTYPE html>\n";
    if (!rest_.starts_with(kDoctype)) fail("no doctype");
    rest_.remove_prefix(std::min(kDoctype.size(), rest_.size()));
    while (!rest_.empty() && problem.empty()) rest_.front() == '<' ? tag() : text();
    if (problem.empty() && !open_.empty()) fail(open_.back() + " is never closed");
  }

 private:
  void fail(const std::string& why) { problem = why + ", before: " + std::string(rest_.substr(0, 80)); }

  void text() {
    const std::string_view here = rest_.substr(0, rest_.find('<'));
    entities(here);
    rest_.remove_prefix(here.size());
  }
  void entities(std::string_view here) {
    if (here.find('>') != std::string_view::npos)
      return fail("a bare > in " + std::string(here.substr(0, 60)));
    for (size_t at = 0; (at = here.find('&', at)) != std::string_view::npos; ++at) {
      bool known = false;
      for (const std::string_view name : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"})
        known |= here.substr(at).starts_with(name);
      if (!known) return fail("a bare & in " + std::string(here.substr(at, 60)));
    }
  }
  std::string name() {
    std::string found;
    while (!rest_.empty() && (std::isalnum(static_cast<unsigned char>(rest_[0])) || rest_[0] == '-')) {
      found += rest_[0];
      rest_.remove_prefix(1);
    }
    return found;
  }
  void tag() {
    rest_.remove_prefix(1);
    if (rest_.starts_with('/')) {
      rest_.remove_prefix(1);
      const std::string closed = name();
      if (open_.empty() || open_.back() != closed) return fail("</" + closed + "> closes nothing");
      if (!rest_.starts_with('>')) return fail("no > after </" + closed);
      rest_.remove_prefix(1);
      open_.pop_back();
      return;
    }
    const std::string element = name();
    if (element.empty()) return fail("a bare <");
    ++elements[element];
    std::string type;
    std::set<std::string> mine;
    while (rest_.starts_with(' ')) {
      rest_.remove_prefix(1);
      const std::string attribute = name();
      if (attribute.empty() || !mine.insert(attribute).second) return fail("attributes of " + element);
      attributes.insert(attribute);
      if (!rest_.starts_with("=")) continue;  // selected, open
      if (!rest_.starts_with("=\"")) return fail("an attribute without quotes");
      rest_.remove_prefix(2);
      const std::string value(rest_.substr(0, rest_.find('"')));
      if (value.size() == rest_.size() || value.find('<') != std::string::npos)
        return fail("a value that does not end");
      entities(value);
      if (attribute == "type") type = " " + value;
      if (attribute == "id" && !ids_.insert(value).second) return fail("two elements are called " + value);
      rest_.remove_prefix(value.size() + 1);
    }
    const bool closes_itself = rest_.starts_with("/>");
    if (!closes_itself && !rest_.starts_with('>')) return fail("the end of <" + element);
    rest_.remove_prefix(closes_itself ? 2 : 1);
    static const std::set<std::string> kVoid{"meta", "input", "br"};
    if (closes_itself || kVoid.contains(element)) return;
    open_.push_back(element);
    if (element != "script" && element != "style") return;
    const size_t end = rest_.find("</" + element);
    if (end == std::string_view::npos) return fail(element + " does not end");
    raw[element + type] = rest_.substr(0, end);
    rest_.remove_prefix(end);
  }

  std::string_view rest_;
  std::vector<std::string> open_;
  std::set<std::string> ids_;
};

}  // namespace moesaic::test

#include "report/page/trace_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "report/page/run_file.h"

namespace moesaic {
namespace {

constexpr int64_t kMaxEvents = 4'000'000;
constexpr size_t kMaxStreams = 64;
constexpr int64_t kMaxId = int64_t{1} << 31;
constexpr double kMaxTime = 1e15;  // microseconds: thirty years

class Names {
 public:
  int32_t operator[](const std::string& name) {
    const auto [at, is_new] = index_.try_emplace(name, static_cast<int32_t>(names.size()));
    if (is_new) names.push_back(name);
    return at->second;
  }
  std::vector<std::string> names;

 private:
  std::map<std::string, int32_t> index_;
};

/// Collects the events while nlohmann's parser walks the text; builds no tree.
class Events : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::map<int64_t, std::map<int64_t, std::vector<Span>>> spans;  // by rank and row, of the first ranks
  std::map<int64_t, std::string> stream_of;                       // by row
  std::set<int64_t> ranks;
  Names names, segments;
  std::string problem;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t n) override { return number(static_cast<double>(n)); }
  bool number_unsigned(number_unsigned_t n) override { return number(static_cast<double>(n)); }
  bool number_float(number_float_t n, const string_t&) override { return number(n); }
  bool string(string_t& text) override {
    if (depth_ == event_depth_) {
      if (key_ == "ph") phase_ = text;
      if (key_ == "name") name_ = text;
      if (key_ == "cat") segment_ = text;
    } else if (depth_ == event_depth_ + 1 && inner_key_ == "name") {
      value_name_ = text;
    }
    return true;
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override {
    ++depth_;
    if (event_depth_ == 0 && in_events_) event_depth_ = depth_;
    if (depth_ == event_depth_)
      phase_.clear(), name_.clear(), segment_.clear(), value_name_.clear(), pid_ = tid_ = 0,
                                                                            begin_ = length_ = kNan;
    return depth_ <= kMaxDepth || fail_with("it is nested deeper than a trace");
  }
  bool end_object() override {
    if (depth_ == event_depth_ && in_events_ && !take_event()) return false;
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    ++depth_;
    if (depth_ == 1 || (depth_ == 2 && key_ == "traceEvents")) in_events_ = true, array_depth_ = depth_;
    return depth_ <= kMaxDepth || fail_with("it is nested deeper than a trace");
  }
  bool end_array() override {
    if (in_events_ && depth_ == array_depth_) in_events_ = false, event_depth_ = 0;
    --depth_;
    return true;
  }
  bool key(string_t& text) override {
    (depth_ <= std::max(event_depth_, 1) ? key_ : inner_key_).swap(text);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return fail_with(fmt::format("damaged JSON at byte {}", position));
  }

 private:
  static constexpr int kMaxDepth = 16;
  static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

  bool fail_with(std::string why) {
    problem = std::move(why);
    return false;
  }
  bool number(double value) {
    if (depth_ != event_depth_) return true;
    if (key_ == "ts") begin_ = value;
    if (key_ == "dur") length_ = value;
    if (key_ == "pid") pid_ = id(value);
    if (key_ == "tid") tid_ = id(value);
    return true;
  }
  static int64_t id(double value) { return value >= 0 && value < kMaxId ? static_cast<int64_t>(value) : 0; }
  bool take_event() {
    if (phase_ == "M" && name_ == "thread_name") stream_of[tid_] = value_name_;
    if (phase_ != "X" || !(std::abs(begin_) < kMaxTime) || !(length_ >= 0 && length_ < kMaxTime)) return true;
    if (++num_events_ > kMaxEvents) return fail_with(fmt::format("it holds more than {} events", kMaxEvents));
    ranks.insert(pid_);
    if (spans.size() >= Timeline::kMaxRanks && !spans.contains(pid_)) return true;
    auto& rows = spans[pid_];
    if (rows.size() >= kMaxStreams && !rows.contains(tid_)) return true;
    rows[tid_].push_back({begin_, begin_ + length_, names[name_], segments[segment_]});
    return true;
  }

  int depth_ = 0, event_depth_ = 0, array_depth_ = 0;
  bool in_events_ = false;
  std::string key_, inner_key_, phase_, name_, segment_, value_name_;
  int64_t pid_ = 0, tid_ = 0, num_events_ = 0;
  double begin_ = 0, length_ = 0;
};

double union_us(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  double total = 0, reached = -std::numeric_limits<double>::infinity();
  for (const Span& span : spans) {
    if (span.end <= reached) continue;
    total += span.end - std::max(span.begin, reached);
    reached = span.end;
  }
  return total;
}

}  // namespace

double RankTimeline::busy_us(size_t stream) const {
  return union_us(streams[stream]);
}

double RankTimeline::exposed_us(size_t compute) const {
  std::vector<Span> all;
  for (const auto& spans : streams) all.insert(all.end(), spans.begin(), spans.end());
  return union_us(std::move(all)) - busy_us(compute);
}

size_t Timeline::compute_stream() const {
  const auto at = std::find(streams.begin(), streams.end(), "compute");
  return at == streams.end() ? 0 : static_cast<size_t>(at - streams.begin());
}

void Timeline::thin(size_t max_spans) {
  for (RankTimeline& rank : ranks) {
    std::vector<double> lengths;
    for (const auto& spans : rank.streams)
      for (const Span& span : spans) lengths.push_back(span.end - span.begin);
    if (lengths.size() <= max_spans) continue;
    const size_t surplus = lengths.size() - max_spans;
    const auto cut = lengths.begin() + static_cast<std::ptrdiff_t>(surplus) - 1;
    std::nth_element(lengths.begin(), cut, lengths.end());
    auto equal = static_cast<int64_t>(surplus) -
                 std::count_if(lengths.begin(), cut + 1, [&](double l) { return l < *cut; });
    for (auto& spans : rank.streams)
      std::erase_if(spans, [&](const Span& span) {
        const double length = span.end - span.begin;
        return length < *cut || (length == *cut && equal-- > 0);
      });
    rank.left_out = static_cast<int64_t>(surplus);
  }
}

Timeline parse_trace(std::string_view text, const std::string& where) {
  Events events;
  const bool read = nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  require<IoError>(read, "{} cannot be shown: {}", where, events.problem);
  Timeline timeline;
  timeline.num_ranks = static_cast<int64_t>(events.ranks.size());
  timeline.names = std::move(events.names.names);
  timeline.segments = std::move(events.segments.names);
  std::map<int64_t, size_t> place;  // of a row
  double begin = std::numeric_limits<double>::infinity(), end = -begin;
  for (const auto& [rank, rows] : events.spans) {
    for (const auto& [row, spans] : rows) {
      if (place.try_emplace(row, place.size()).second) {
        const auto name = events.stream_of.find(row);
        timeline.streams.push_back(name != events.stream_of.end() ? name->second
                                                                  : fmt::format("row {}", row));
      }
      for (const Span& span : spans) begin = std::min(begin, span.begin), end = std::max(end, span.end);
    }
  }
  for (auto& [rank, rows] : events.spans) {
    RankTimeline& mine = timeline.ranks.emplace_back();
    mine.rank = rank;
    mine.streams.resize(timeline.streams.size());
    for (auto& [row, spans] : rows) {
      for (Span& span : spans) span.begin -= begin, span.end -= begin;
      std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
      mine.streams[place[row]] = std::move(spans);
    }
  }
  if (!timeline.ranks.empty()) timeline.duration_us = end - begin;
  return timeline;
}

Timeline read_trace(const std::string& path) {
  return parse_trace(read_run_file(path), path);
}

}  // namespace moesaic

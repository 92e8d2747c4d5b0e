#include "report/page/metrics_reader.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "report/page/run_file.h"

namespace moesaic {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMaxLine = size_t{64} << 20;
constexpr double kMaxStep = 9e15;  // whole numbers stay exact

struct Named {
  const char* name;
  std::vector<double> MetricColumns::*column;
};
constexpr Named kNumbers[] = {
    {"loss", &MetricColumns::loss},
    {"val_loss", &MetricColumns::val_loss},
    {"aux_loss", &MetricColumns::aux_loss},
    {"z_loss", &MetricColumns::z_loss},
    {"grad_norm", &MetricColumns::grad_norm},
    {"lr", &MetricColumns::lr},
    {"tokens_per_s", &MetricColumns::tokens_per_s},
    {"mfu", &MetricColumns::mfu},
    {"counted_tokens", &MetricColumns::counted_tokens},
    {"seconds", &MetricColumns::seconds},
};
constexpr size_t kNumNumbers = std::size(kNumbers);

/// What one line holds. Fed by nlohmann's parser, which reads without recursion; builds no tree.
class Line : public nlohmann::json_sax<nlohmann::json> {
 public:
  double step = kNan, dropped = kNan;
  double numbers[kNumNumbers];
  bool skipped = false;
  std::vector<std::vector<double>> load;
  MemoryByPurpose memory;

  bool parse(std::string_view text) {
    step = dropped = kNan, skipped = false;
    std::fill(std::begin(numbers), std::end(numbers), kNan);
    load.clear(), memory.clear();
    depth_ = 0;
    return nlohmann::json::sax_parse(text.begin(), text.end(), this) && step >= 0 && step <= kMaxStep &&
           step == std::floor(step);
  }

  bool null() override { return value(kNan); }
  bool boolean(bool b) override {
    if (depth_ == 1 && key_ == "skipped") skipped = b;
    return depth_ > 0;
  }
  bool number_integer(number_integer_t n) override { return value(static_cast<double>(n)); }
  bool number_unsigned(number_unsigned_t n) override { return value(static_cast<double>(n)); }
  bool number_float(number_float_t n, const string_t&) override { return value(n); }
  bool string(string_t&) override { return depth_ > 0; }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override {
    if (depth_ == 2 && key_ == "expert_load") load.emplace_back();
    return depth_ > 0 && open();  // a line is an object
  }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    (depth_ == 1 ? key_ : inner_key_).swap(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  static constexpr int kMaxDepth = 4;

  bool open() { return ++depth_ <= kMaxDepth; }
  bool close() {
    --depth_;
    return true;
  }
  bool value(double number) {
    if (depth_ == 1) {
      if (key_ == "step") step = number;
      for (size_t i = 0; i < kNumNumbers; ++i)
        if (key_ == kNumbers[i].name) numbers[i] = number;
    } else if (depth_ == 2 && key_ == "dropped") {
      dropped = (std::isnan(dropped) ? 0 : dropped) + number;
    } else if (depth_ == 2 && key_ == "memory_bytes") {
      memory.emplace_back(inner_key_, std::abs(number) < kMaxStep ? static_cast<int64_t>(number) : 0);
    } else if (depth_ == 3 && key_ == "expert_load" && !load.empty()) {
      load.back().push_back(number);
    }
    return depth_ > 0;
  }

  int depth_ = 0;
  std::string key_, inner_key_;
};

double worst_balance(const std::vector<std::vector<double>>& load) {
  double worst = kNan;
  for (const auto& layer : load) {
    double sum = 0, largest = 0;
    for (const double l : layer) sum += l, largest = std::max(largest, l);
    if (sum > 0) worst = std::fmax(worst, largest * static_cast<double>(layer.size()) / sum);
  }
  return worst;
}

}  // namespace

MetricColumns parse_metrics(std::string_view text) {
  MetricColumns all;
  Line line;
  for (size_t end = 0; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    const bool whole = end <= kMaxLine && line.parse(text.substr(0, end));
    if (!whole || (!all.step.empty() && line.step <= all.step.back())) {
      ++all.damaged_lines;
      continue;
    }
    all.step.push_back(line.step);
    for (size_t i = 0; i < kNumNumbers; ++i) (all.*kNumbers[i].column).push_back(line.numbers[i]);
    all.dropped.push_back(line.dropped);
    all.balance.push_back(worst_balance(line.load));
    all.skipped.push_back(static_cast<char>(line.skipped));
    all.load.add(static_cast<int64_t>(line.step), line.load);
    all.memory.swap(line.memory);
  }
  return all;
}

MetricColumns read_metrics(const std::string& path) {
  return parse_metrics(read_run_file(path));
}

}  // namespace moesaic

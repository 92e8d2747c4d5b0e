#include "report/prometheus.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/file.h"

namespace moesaic {
namespace {

std::string value_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

/// The families of one file, each with its two comment lines before its samples.
class Families {
 public:
  explicit Families(const std::string& run) : run_("run=\"" + prometheus_label(run) + '"') {}

  void begin(const char* name, const char* type, const char* help) {
    name_ = name;
    text += fmt::format("# HELP moesaic_{} {}\n# TYPE moesaic_{} {}\n", name, help, name, type);
  }
  void sample(double value, const std::string& more_labels = "") {
    text += fmt::format("moesaic_{}{{{}{}}} {}\n", name_, run_, more_labels, value_text(value));
  }
  void gauge(const char* name, const char* help, double value) {
    begin(name, "gauge", help);
    sample(value);
  }
  void counter(const char* name, const char* help, int64_t value) {
    begin(name, "counter", help);
    sample(static_cast<double>(value));
  }

  std::string text;

 private:
  std::string run_, name_;
};

}  // namespace

std::string prometheus_label(const std::string& value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return text;
}

std::string prometheus_text(const StepMetrics& m, const PrometheusTotals& totals, const std::string& run,
                            double unix_seconds) {
  Families f(run);
  f.gauge("step", "Index of the newest step, from 0.", static_cast<double>(m.step));
  f.gauge("last_step_timestamp_seconds", "When that step ended, seconds since 1970.", unix_seconds);
  f.gauge("loss", "Cross-entropy, nats per token.", m.loss);
  if (totals.val_loss)
    f.gauge("validation_loss", "Held-out loss of the newest evaluation, nats per token.", *totals.val_loss);
  f.gauge("balance_loss", "Load-balance loss as weighted into the objective.", m.aux_loss);
  f.gauge("router_z_loss", "Router z-loss as weighted into the objective.", m.z_loss);
  f.gauge("grad_norm", "Global gradient norm before clipping.", m.grad_norm);
  f.gauge("learning_rate", "Learning rate of the step.", m.lr);
  f.gauge("tokens_per_second", "Tokens of all ranks over the step's wall time.", m.tokens_per_s);
  f.gauge("step_seconds", "Wall time of the step.", m.seconds);
  if (m.mfu) f.gauge("mfu_ratio", "Share of the devices' peak, 0 to 1.", *m.mfu);
  f.counter("tokens_total", "Tokens that the loss was taken over since the process began.", totals.tokens);
  f.counter("skipped_steps_total", "Steps that updated nothing (NaN or Inf) since the process began.",
            totals.skipped_steps);
  f.counter("dropped_rows_total", "Routed rows that were dropped since the process began.",
            totals.dropped_rows);
  if (!m.memory_bytes.empty()) {
    f.begin("memory_bytes", "gauge", "Device memory of rank 0 by purpose.");
    for (const auto& [purpose, bytes] : m.memory_bytes)
      f.sample(static_cast<double>(bytes), ",purpose=\"" + prometheus_label(purpose) + '"');
  }
  if (!m.expert_load.empty()) {
    f.begin("expert_load_max_over_mean", "gauge",
            "Load of a MoE layer's busiest expert over the mean, 1 is balanced.");
    for (size_t layer = 0; layer < m.expert_load.size(); ++layer)
      f.sample(expert_balance({m.expert_load[layer]}), fmt::format(",layer=\"{}\"", layer));
  }
  return std::move(f.text);
}

PrometheusFile::PrometheusFile(std::string path, std::string run)
    : path_(std::move(path)), run_(std::move(run)) {
  const AtomicFile can_be_written(path_);  // its temporary file goes again
}

void PrometheusFile::write(const StepMetrics& metrics) {
  totals_.skipped_steps += metrics.skipped ? 1 : 0;
  totals_.dropped_rows += std::accumulate(metrics.dropped.begin(), metrics.dropped.end(), int64_t{0});
  totals_.tokens += metrics.counted_tokens;
  if (metrics.val_loss) totals_.val_loss = metrics.val_loss;
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  AtomicFile file(path_);
  file.write(prometheus_text(metrics, totals_, run_, now.count()));
  file.commit_unsynced();
}

}  // namespace moesaic

#include "report/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/units.h"

namespace moesaic {
namespace {

constexpr int kLargestBar = 30;
constexpr int kSmallestBar = 5;
constexpr int kUnknownColumns = 80;

}  // namespace

double estimate_remaining(double seconds, double fraction_at_start, double fraction) {
  const double done = fraction - fraction_at_start;
  return done > 0 ? seconds * (1 - fraction) / done : -1;
}

std::string progress_text(const StepMetrics& metrics, const RunPosition& position) {
  std::string text = fmt::format("step {}", metrics.step + 1);
  if (position.num_steps > 0) text += fmt::format("/{}", position.num_steps);
  text += fmt::format("  loss {:.4f}", metrics.loss);
  if (metrics.val_loss) text += fmt::format("  held-out {:.4f}", *metrics.val_loss);
  text += fmt::format("  {} tokens/s  grad {:.2f}  balance {:.2f}", format_count(metrics.tokens_per_s),
                      metrics.grad_norm, expert_balance(metrics.expert_load));
  if (metrics.skipped) text += "  SKIPPED";
  if (position.eta_seconds >= 0) text += "  eta " + format_seconds(position.eta_seconds);
  return text;
}

std::string progress_line(const StepMetrics& metrics, const RunPosition& position, int columns) {
  std::string text = progress_text(metrics, position);
  const auto limit = static_cast<size_t>(std::max(columns, 0));
  if (text.size() >= limit) return text.substr(0, limit);
  const int bar = std::min(kLargestBar, columns - static_cast<int>(text.size()) - 3);  // brackets and a space
  if (bar < kSmallestBar) return text;
  const int full = static_cast<int>(std::lround(std::clamp(position.fraction, 0.0, 1.0) * bar));
  return fmt::format("[{:#<{}}{:-<{}}] {}", "", full, "", bar - full, text);
}

int terminal_columns(std::FILE* out) {
  if (isatty(fileno(out)) == 0) return 0;
  winsize size{};
  const bool known = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUnknownColumns;
}

ProgressWriter::ProgressWriter(std::FILE* out, int columns, int64_t plain_every)
    : out_(out), columns_(columns), plain_every_(plain_every) {
  MOESAIC_CHECK(plain_every > 0, "plain_every is {}", plain_every);
}

void ProgressWriter::update(const StepMetrics& metrics, const RunPosition& position) {
  if (columns_ > 0) {
    // The last column stays free: a terminal that wraps there would leave lines behind.
    fmt::print(out_, "\r{}\x1b[K", progress_line(metrics, position, columns_ - 1));
    drawn_ = true;
  } else if (first_ || metrics.skipped || metrics.val_loss || (metrics.step + 1) % plain_every_ == 0 ||
             position.fraction >= 1) {
    fmt::print(out_, "{}\n", progress_text(metrics, position));
  }
  first_ = false;
  std::fflush(out_);
}

void ProgressWriter::clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", out_);
  std::fflush(out_);
  drawn_ = false;
}

void ProgressWriter::finish() {
  if (!drawn_) return;
  std::fputc('\n', out_);
  std::fflush(out_);
  drawn_ = false;
}

}  // namespace moesaic

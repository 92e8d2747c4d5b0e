#include "report/metrics.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

namespace moesaic {

std::string to_json_line(const StepMetrics& metrics) {
  nlohmann::ordered_json line;  // keeps the order below; writes numbers that are not finite as null
  line["step"] = metrics.step;
  line["loss"] = metrics.loss;
  if (metrics.val_loss) line["val_loss"] = *metrics.val_loss;
  line["aux_loss"] = metrics.aux_loss;
  line["z_loss"] = metrics.z_loss;
  line["grad_norm"] = metrics.grad_norm;
  line["lr"] = metrics.lr;
  line["tokens_per_s"] = metrics.tokens_per_s;
  if (metrics.mfu) line["mfu"] = *metrics.mfu;
  line["counted_tokens"] = metrics.counted_tokens;
  line["seconds"] = metrics.seconds;
  line["data_wait_s"] = metrics.data_wait_s;
  line["skipped"] = metrics.skipped;
  auto& memory = line["memory_bytes"] = nlohmann::ordered_json::object();
  for (const auto& [purpose, bytes] : metrics.memory_bytes) memory[purpose] = bytes;
  line["expert_load"] = metrics.expert_load;
  line["dropped"] = metrics.dropped;
  return line.dump();
}

double expert_balance(const std::vector<std::vector<int64_t>>& expert_load) {
  double worst = 1;
  for (const auto& layer : expert_load) {
    const int64_t sum = std::accumulate(layer.begin(), layer.end(), int64_t{0});
    if (sum == 0) continue;
    const auto busiest = static_cast<double>(*std::max_element(layer.begin(), layer.end()));
    worst = std::max(worst, busiest * static_cast<double>(layer.size()) / static_cast<double>(sum));
  }
  return worst;
}

}  // namespace moesaic

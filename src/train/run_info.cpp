#include "train/run_info.h"

#include <sstream>

#include "config/counts.h"
#include "config/enum_names.h"

namespace moesaic {
namespace {

constexpr Purpose kPurposes[] = {Purpose::parameters,  Purpose::gradients, Purpose::optimizer,
                                 Purpose::activations, Purpose::workspace, Purpose::batch,
                                 Purpose::buffers};

}  // namespace

MemoryByPurpose memory_by_purpose(const Arena& arena) {
  MemoryByPurpose sums;
  for (Purpose purpose : kPurposes) sums.emplace_back(name_of(purpose), arena.bytes(purpose));
  return sums;
}

RunInfo gather_run_info(const Config& config, const LayerSpec& spec, Rank& rank) {
  const ModelCounts counts = count_model(config.model);
  RunInfo info;
  info.model = config.model.name;
  info.parameters = counts.total;
  info.active_parameters = counts.active;
  info.flops_per_token = flops_per_token(config.model, config.train.seq_len);
  info.peak_flops = peak_flops(config.run.device);
  info.tokens_per_step = config.train.global_batch * config.train.seq_len;
  info.ranks = rank.world_size;
  info.e = spec.e;
  info.dispatch = spec.e == 1 ? "none" : name_of(spec.layout.dispatch);
  std::string mine;
  for (const auto& [purpose, bytes] : memory_by_purpose(rank.device->arena()))
    mine += fmt::format("{} ", bytes);
  for (const std::string& other : rank.control.all_gather(mine)) {
    std::istringstream numbers(other);
    MemoryByPurpose& sums = info.memory.emplace_back();
    for (Purpose purpose : kPurposes) {
      sums.emplace_back(name_of(purpose), 0);
      numbers >> sums.back().second;
    }
  }
  return info;
}

}  // namespace moesaic

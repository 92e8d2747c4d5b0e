#include "train/inspect.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/units.h"
#include "config/counts.h"
#include "config/enum_names.h"
#include "config/validate.h"
#include "report/table.h"
#include "train/session.h"
#include "train/snapshot.h"
#include "train/trainer.h"

namespace moesaic {
namespace {

/// "layers.*.experts.*.w1" for "layers.3.experts.5.w1": rows of one kind are shown together.
std::string pattern_of(const std::string& name) {
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool number = name[i] >= '0' && name[i] <= '9' && i > 0 && name[i - 1] == '.';
    if (!number) {
      text += name[i];
      continue;
    }
    while (i + 1 < name.size() && name[i + 1] != '.') ++i;
    text += '*';
  }
  return text;
}

void add_parameters(Table& table, const ParameterTable& parameters) {
  struct Kind {
    Shape shape;
    int64_t rows = 0, elements = 0;
    bool decay = false;
    std::string device_tensor;
    Replicas replicas = Replicas::stage;
  };
  std::vector<std::string> order;
  std::map<std::string, Kind> kinds;
  for (const ParameterRow& row : parameters.rows()) {
    const std::string pattern = pattern_of(row.name);
    if (!kinds.contains(pattern)) order.push_back(pattern);
    Kind& kind = kinds[pattern];
    kind.shape = row.shape, kind.decay = row.decay, kind.device_tensor = pattern_of(row.device_tensor);
    kind.replicas = parameters.buckets()[static_cast<size_t>(row.bucket)].replicas;
    ++kind.rows, kind.elements += row.shape.numel();
  }
  for (const std::string& name : order) {
    const Kind& k = kinds[name];
    table.add_row({name, k.shape.str(), std::to_string(k.rows), format_count(static_cast<double>(k.elements)),
                   k.decay ? "yes" : "no", k.replicas == Replicas::stage ? "dp*n" : "edp", k.device_tensor});
  }
}

std::string activation_table(const ActivationTable& activations) {
  Table table({{"activation"},
               {"shape"},
               {"here"},
               {"type"},
               {"bytes", Table::Align::right},
               {"none"},
               {"selective"},
               {"full"},
               {"rebuilt by"}});
  for (const ActivationRow& row : activations.rows()) {
    const auto mark = [&](Rebuild policy) { return ActivationTable::kept(row, policy) ? "kept" : ""; };
    table.add_row({row.name, row.letters, row.shape.str(), std::string(name_of(row.dtype)),
                   std::to_string(row.shape.numel() * size_of(row.dtype)), mark(Rebuild::none),
                   mark(Rebuild::selective), mark(Rebuild::full), row.rebuilt_by});
  }
  table.add_rule();
  const auto sum = [&](Rebuild policy) { return format_bytes(activations.bytes(policy)); };
  table.add_row({"kept per layer", "", "", "", "", sum(Rebuild::none), sum(Rebuild::selective),
                 sum(Rebuild::full), ""});
  return table.str();
}

void on_null_device(Config config, int64_t rank, bool training, const std::function<void(Session&)>& look) {
  config.layout.overlap =
      resolve_overlap(config.layout.overlap, config.run.device);  // what its device would do
  config.run.device = DeviceKind::null;
  run_null_rank(rank, Mesh(config.layout).world_size(), [&](Rank& r) {
    Session session(config, r, training);
    look(session);
  });
}

}  // namespace

std::string inspect_model(const Config& config) {
  validate_values(config);
  const ModelCounts counts = count_model(config.model);
  const int64_t S = config.train.seq_len;
  std::string text = fmt::format("{}: {} parameters ({}), {} active per token ({}), {} per token at S {}\n\n",
                                 config.model.name, format_count(static_cast<double>(counts.total)),
                                 counts.total, format_count(static_cast<double>(counts.active)),
                                 counts.active, format_flops(flops_per_token(config.model, S)), S);
  Config alone = config;  // one rank holds every row
  alone.layout.dp = alone.layout.n = alone.layout.e = 1;
  alone.train.micro_batch = alone.train.global_batch = 1;
  on_null_device(alone, 0, false, [&](Session& session) {
    Table table({{"parameter"},
                 {"shape"},
                 {"rows", Table::Align::right},
                 {"elements", Table::Align::right},
                 {"decay"},
                 {"replicas"},
                 {"device tensor"}});
    add_parameters(table, session.stage().table());
    text += table.str() + "\n";
    const StagePrograms& programs = session.stage().programs();
    if (programs.dense)
      text += "A leading dense layer\n" + activation_table(programs.dense->activations) + "\n";
    if (programs.moe)
      text += "A MoE layer, one rank, one sequence\n" + activation_table(programs.moe->activations);
  });
  return text;
}

std::string inspect_memory(const Config& config) {
  std::string text;
  const int64_t world = Mesh(config.layout).world_size();
  int64_t most = -1, least = 0, most_rank = 0;
  std::string table;
  // Ranks differ only by the experts that they hold; the first dp*n ranks show all of them.
  for (int64_t r = 0; r < std::min<int64_t>(world, 64); ++r)
    on_null_device(config, r, true, [&](Session& session) {
      const int64_t bytes = session.rank().device->arena().bytes();
      least = most < 0 ? bytes : std::min(least, bytes);
      if (bytes <= most) return;
      most = bytes, most_rank = r;
      table = memory_table(session.rank().device->arena(), snapshot_bytes(session));
    });
  const std::string whose = world == 1      ? "1 rank"
                            : most == least ? fmt::format("{} ranks, {} each", world, format_bytes(most))
                                            : fmt::format("{} ranks, from {} to the {} of rank {}", world,
                                                          format_bytes(least), format_bytes(most), most_rank);
  return whose + "\n" + table;
}

std::string inspect_program(const Config& config, const std::string& only) {
  std::string text;
  on_null_device(config, 0, true, [&](Session& session) {
    for (const Plan* plan : session.stage().programs().plans())
      if (plan->program().name().find(only) != std::string::npos) text += print_plan(*plan) + "\n";
  });
  require<ConfigError>(!text.empty(), "no program of this run has \"{}\" in its name", only);
  return text;
}

}  // namespace moesaic

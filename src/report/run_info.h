#pragma once
// run.json: what is known about a run before its first step and follows from no single key of config.toml. Rewritten when
// the bound on rows grows. Format: docs/formats/run_folder.md.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace moesaic {

/// Sums by purpose ("parameters", "activations", ...) in bytes, in the memory table's order.
using MemoryByPurpose = std::vector<std::pair<std::string, int64_t>>;

struct RunInfo {
  std::string model;                 // name of the shape
  int64_t parameters = 0;            // all
  int64_t active_parameters = 0;     // matmul parameters that one token meets
  double flops_per_token = 0;        // forward and backward
  std::optional<double> peak_flops;  // of one device, where known: what MFU is counted against
  int64_t tokens_per_step = 0;       // all ranks
  int64_t ranks = 0;
  int64_t e = 0;                        // ranks that share the experts, resolved
  std::string dispatch;                 // resolved: "a2a", "ag_rs"; "none" when e = 1
  std::vector<MemoryByPurpose> memory;  // [ranks]
};

/// Writes it as JSON, whole or not at all. Throws IoError.
void write_run_info(const std::string& path, const RunInfo& info);

/// Reads what write_run_info wrote; members that a file lacks stay at their defaults. IoError when it is damaged or one
/// of its values has another type.
RunInfo read_run_info(const std::string& path);

}  // namespace moesaic

#pragma once
// The tuning file: timed choices, made by `moesaic tune` and only read by runs, so that training never times and repeats are
// bit-equal. JSON: docs/formats/tuning_file.md.
#include <string>
#include <vector>

#include "comm/control.h"
#include "config/config.h"
#include "ops/matmul/gemm_choices.h"

namespace moesaic {

/// Seconds of one MoE layer, forward and backward, under both ways of dispatch.
struct DispatchTimes {
  std::string layer;  // what the times hold for: dispatch_key()
  double a2a = 0, ag_rs = 0;
  Dispatch faster() const { return a2a < ag_rs ? Dispatch::a2a : Dispatch::ag_rs; }
};

struct Tuning {
  std::string library;  // ops::gemm_library() of the GPU that was timed; "cpu" on CPUs
  std::vector<ops::GemmChoice> products;
  std::vector<DispatchTimes> dispatch;
};

/// What the times of a dispatch hold for: the shape of a layer and who shares it.
std::string dispatch_key(const Config& config);
/// What this rank's device is called in a tuning file.
std::string tuned_library(const Config& config);

/// Throws IoError for a file that cannot be read or makes no sense. Untrusted: algorithms are checked where they are used.
Tuning read_tuning(const std::string& path);
void write_tuning(const std::string& path, const Tuning& tuning);

/// run.tuning, read by every rank: this thread's products run with its algorithms, and the returned configuration has its
/// dispatch where config.layout.dispatch is automatic. ConfigError when the file was made for another GPU or library, or is
/// not the same on all ranks. Without run.tuning the configuration as it is.
Config with_tuning(const Config& config, Control& control);

}  // namespace moesaic

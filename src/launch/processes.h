#pragma once
// Starting the ranks of a job as processes of this machine, without a launcher.
#include <cstdint>
#include <string>
#include <vector>

namespace moesaic {

/// Starts `count` copies of this program with `arguments` (without the program's name) and torchrun's variables, and waits
/// for them. The control channel's port: `control_port`, or any free one when it is 0.
///
/// Ctrl-C and SIGTERM are passed on to rank 0, which all ranks follow; a second one ends all at once. When a process fails, the
/// others have some seconds to end by themselves. When this process dies, so do they.
/// Returns 0, or the exit code of the process that failed first (128 + the signal that killed it), 130 after a second signal.
/// Throws IoError when a process cannot be started. Requires: this process has one thread.
int run_processes(int64_t count, int64_t control_port, const std::vector<std::string>& arguments);

}  // namespace moesaic

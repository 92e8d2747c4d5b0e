#pragma once
// What the program's exit code tells whoever started it: a person's script, --restart, a batch system.

namespace moesaic {

enum ExitCode : int {
  kExitDone = 0,
  kExitRefused = 1,       // refused or failed with a message: the same would happen again
  kExitUsage = 2,         // the command line makes no sense
  kExitLeftBehind = 3,    // a rank had to be left in the middle of its work
  kExitJobFailed = 4,     // a rank died, hung or lost its connection: started again, the run goes on
  kExitInterrupted = 130  // by a signal, after saving (the first one) or at once (the second)
};

}  // namespace moesaic

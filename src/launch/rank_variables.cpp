#include "launch/rank_variables.h"

#include <charconv>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "base/fingerprint.h"
#include "config/enum_names.h"
#include "config/nearest.h"

namespace moesaic {
namespace {

constexpr int64_t kMaxRanks = 1 << 20;
constexpr int64_t kMaxPort = 65535;
constexpr int kUsualPort = 29501;                        // torchrun's usual MASTER_PORT, and one
constexpr int kFirstJobPort = 20000, kJobPorts = 10000;  // below those that systems hand out by themselves
constexpr size_t kMaxHost = 253;

// The first that is found counts. srun --mpi=pmi2 sets MPICH's too, which do not say where rank 0 is.
constexpr Launcher kFamilies[] = {Launcher::torchrun, Launcher::openmpi, Launcher::slurm, Launcher::mpich};

int64_t number(const std::string& name, const std::string& text, int64_t min, int64_t max) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require<ConfigError>(
      error == std::errc() && end == text.data() + text.size() && value >= min && value <= max,
      "the variable {} is \"{}\": expected a whole number from {} to {}", name, excerpt(text), min, max);
  return value;
}

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
         c == '_';
}

/// A name or a numeric address; ':' and '%' as in IPv6.
void check_host(const std::string& name, const std::string& host) {
  bool good = !host.empty() && host.size() <= kMaxHost;
  for (char c : host) good = good && (is_host_character(c) || c == ':' || c == '%');
  require<ConfigError>(good, "{} is \"{}\": expected a host name or address", name, excerpt(host));
}

/// Element `index` of Slurm's "2(x3),1": that of the list 2, 2, 2, 1.
int64_t tasks_of_node(const std::string& name, const std::string& list, int64_t index) {
  int64_t first = 0;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    std::string element = list.substr(at, comma - at);
    int64_t times = 1;
    if (const size_t open = element.find("(x"); open != std::string::npos) {
      require<ConfigError>(element.back() == ')', "the variable {} is \"{}\": expected counts like 4(x2),3",
                           name, excerpt(list));
      times = number(name, element.substr(open + 2, element.size() - open - 3), 1, kMaxRanks);
      element.resize(open);
    }
    const int64_t tasks = number(name, element, 1, kMaxRanks);
    first += times;
    if (index < first) return tasks;
    at = comma + 1;
  }
  fail<ConfigError>("the variable {} is \"{}\", which has no node number {}", name, excerpt(list), index);
}

/// Reads the variables of all families.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  std::optional<std::string> text(const std::string& name) const { return environment_(name); }
  std::optional<int64_t> integer(const std::string& name, int64_t min, int64_t max) const {
    const auto value = environment_(name);
    if (!value) return std::nullopt;
    return number(name, *value, min, max);
  }

  /// Rank and size of the job, and of the part of it that runs on this machine; nothing when the family is not there.
  std::optional<RankVariables> read(Launcher family) const {
    switch (family) {
      case Launcher::torchrun:
        return place(family, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
      case Launcher::openmpi:
        return place(family, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                     "OMPI_COMM_WORLD_LOCAL_SIZE");
      case Launcher::mpich:
        return place(family, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
      case Launcher::slurm:
        return slurm();
      default:
        return std::nullopt;
    }
  }

  /// The names of a family's rank and size, for messages.
  std::string names(Launcher family) const {
    switch (family) {
      case Launcher::torchrun:
        return "RANK, WORLD_SIZE";
      case Launcher::openmpi:
        return "OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE";
      case Launcher::mpich:
        return "PMI_RANK, PMI_SIZE";
      default:
        return "SLURM_PROCID, " + slurm_size();
    }
  }

 private:
  std::optional<RankVariables> place(Launcher family, const std::string& rank, const std::string& size,
                                     const std::string& local_rank, const std::string& local_size) const {
    const auto r = integer(rank, 0, kMaxRanks - 1), n = integer(size, 1, kMaxRanks);
    if (!r && !n) return std::nullopt;
    require<ConfigError>(r && n,
                         "the variable {} is set, but {} is not: set both, neither, or run.launcher = none",
                         r ? rank : size, r ? size : rank);
    require<ConfigError>(*r < *n, "the variable {} is {}, which is not below {} = {}", rank, *r, size, *n);
    RankVariables found{.family = family, .rank = *r, .world_size = *n};
    found.local_size = integer(local_size, 1, *n);
    found.local_rank = integer(local_rank, 0, kMaxRanks - 1);
    require<ConfigError>(!found.local_rank || *found.local_rank < found.local_size.value_or(*n),
                         "the variable {} is {}, which is not below {} = {}", local_rank, *found.local_rank,
                         found.local_size ? local_size : size, found.local_size.value_or(*n));
    return found;
  }

  std::string slurm_size() const {
    return text("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  }

  /// A batch script has a SLURM_PROCID too: only what srun started has a step's list of nodes. A step of one task may be
  /// the shell in which another launcher was called.
  std::optional<RankVariables> slurm() const {
    if (!text("SLURM_PROCID") || !text("SLURM_STEP_NODELIST")) return std::nullopt;
    auto found = place(Launcher::slurm, "SLURM_PROCID", slurm_size(), "SLURM_LOCALID", "");
    if (found->world_size == 1) return std::nullopt;
    const auto tasks = text("SLURM_STEP_TASKS_PER_NODE");
    const auto node = integer("SLURM_NODEID", 0, kMaxRanks - 1);
    if (tasks && node) found->local_size = tasks_of_node("SLURM_STEP_TASKS_PER_NODE", *tasks, *node);
    return found;
  }

  const Environment& environment_;
};

std::string sentence(const Variables& variables, const RankVariables& v) {
  return fmt::format("{} says rank {} of {} ({})", name_of(v.family), v.rank, v.world_size,
                     variables.names(v.family));
}

/// The one family that counts.
std::optional<RankVariables> choose(const RunConfig& run, const Variables& variables) {
  std::vector<RankVariables> found;
  for (Launcher family : kFamilies) {
    if (run.launcher != Launcher::automatic && run.launcher != family) continue;
    if (const auto place = variables.read(family)) found.push_back(*place);
  }
  for (const RankVariables& other : found)
    require<ConfigError>(
        other.rank == found[0].rank && other.world_size == found[0].world_size,
        "two launchers disagree: {}, {}; set run.launcher to the one that counts (or to none)",
        sentence(variables, found[0]), sentence(variables, other));
  if (!found.empty()) return found[0];
  if (run.launcher == Launcher::automatic) return std::nullopt;
  // Several processes that each believe to be alone would write into one folder.
  for (Launcher family : kFamilies)
    if (const auto other = variables.read(family))
      fail<ConfigError>("run.launcher = {}, but its variables ({}) are not set, while {}",
                        name_of(run.launcher), variables.names(run.launcher), sentence(variables, *other));
  return std::nullopt;
}

std::string job_name(const Variables& variables, Launcher family) {
  const auto part = [&](const char* name) { return variables.text(name).value_or(""); };
  switch (family) {
    case Launcher::torchrun:
      return part("TORCHELASTIC_RUN_ID") + "/" + part("TORCHELASTIC_RESTART_COUNT");
    case Launcher::openmpi:
      return part("PMIX_NAMESPACE");
    case Launcher::slurm:
      return part("SLURM_JOB_ID") + "." + part("SLURM_STEP_ID");
    default:
      return "";
  }
}

std::string find_address(const RunConfig& run, const Variables& variables, const RankVariables& place) {
  if (!run.control_address.empty()) {
    check_host("run.control_address", run.control_address);
    return run.control_address;
  }
  if (const auto address = variables.text("MASTER_ADDR")) {
    check_host("the variable MASTER_ADDR", *address);
    return *address;
  }
  if (place.family == Launcher::slurm) return first_host(*variables.text("SLURM_STEP_NODELIST"));
  const bool one_machine = place.local_size == place.world_size;
  require<ConfigError>(
      one_machine && place.family != Launcher::torchrun,
      "{}, but nothing says on which host rank 0 runs: set MASTER_ADDR or run.control_address",
      sentence(variables, place));
  return "127.0.0.1";
}

int find_port(const RunConfig& run, const Variables& variables, const RankVariables& place) {
  if (run.control_port > 0) return static_cast<int>(run.control_port);
  if (const auto port = variables.integer("MASTER_PORT", 1, kMaxPort - 1)) return static_cast<int>(*port) + 1;
  if (place.job.empty() || place.family == Launcher::torchrun) return kUsualPort;
  return kFirstJobPort + static_cast<int>(fingerprint(place.job) % kJobPorts);
}

}  // namespace

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = name.empty() ? nullptr : std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

std::string first_host(const std::string& list) {
  const auto refuse = [&] {
    fail<ConfigError>(
        "the variable SLURM_STEP_NODELIST is \"{}\": expected a list of hosts like node[01-04,7],other",
        excerpt(list));
  };
  std::string host;
  for (size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      if (!is_host_character(list[at])) refuse();
      host += list[at];
      continue;
    }
    const size_t close = list.find(']', at);
    if (close == std::string::npos) refuse();
    const std::string inside = list.substr(at + 1, close - at - 1);
    if (inside.find_first_not_of("0123456789,-") != std::string::npos) refuse();
    const std::string first = inside.substr(0, inside.find_first_of(",-"));
    if (first.empty()) refuse();
    host += first;
    at = close;
  }
  if (host.empty() || host.size() > kMaxHost) refuse();
  return host;
}

std::optional<RankVariables> find_rank(const RunConfig& run, const Environment& environment) {
  if (run.launcher == Launcher::none) return std::nullopt;
  const Variables variables(environment);
  auto place = choose(run, variables);
  if (!place || place->world_size == 1) return std::nullopt;
  place->job = job_name(variables, place->family);
  place->address = find_address(run, variables, *place);
  place->port = find_port(run, variables, *place);
  return place;
}

}  // namespace moesaic

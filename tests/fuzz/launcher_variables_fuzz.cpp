// The variables of launchers: lines of NAME=VALUE; the first line is a Slurm list of hosts as well.
#include <map>

#include "fuzz/fuzz.h"
#include "launch/rank_variables.h"

using namespace moesaic;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::map<std::string, std::string> variables;
  std::string_view rest = fuzz::text_of(data, size);
  const std::string hosts(rest.substr(0, rest.find('\n')));
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t equals = line.find('=');
    if (equals != std::string_view::npos)
      variables[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  fuzz::accepts([&] {
    const auto place = find_rank({}, [&](const std::string& name) -> std::optional<std::string> {
      const auto at = variables.find(name);
      return at == variables.end() ? std::nullopt : std::optional(at->second);
    });
    if (place &&
        (place->rank < 0 || place->rank >= place->world_size || place->port < 0 || place->port > 65535))
      std::abort();
  });
  fuzz::accepts([&] { first_host(hosts); });
  return 0;
}

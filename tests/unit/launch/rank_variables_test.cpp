// Which rank a process is, from each launcher's variables, good and bad.
#include "launch/rank_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/fingerprint.h"
#include "base/rng.h"
#include "support/thrown.h"

namespace moesaic::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

std::optional<RankVariables> find(const Variables& variables, const RunConfig& run = {}) {
  return find_rank(run, [&](const std::string& name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    if (at == variables.end()) return std::nullopt;
    return at->second;
  });
}
std::string refusal(const Variables& variables, const RunConfig& run = {}) {
  return message_of([&] { find(variables, run); });
}
Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "node-1"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "x7"},
                          {"TORCHELASTIC_RESTART_COUNT", "0"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "2"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                         {"PMIX_NAMESPACE", "1678508033"}};
const Variables kMpich{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSlurm{{"SLURM_PROCID", "3"},
                       {"SLURM_NTASKS", "6"},
                       {"SLURM_STEP_NUM_TASKS", "6"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_NODEID", "1"},
                       {"SLURM_STEP_NODELIST", "gpu[07-09]"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"},
                       {"SLURM_JOB_ID", "4711"},
                       {"SLURM_STEP_ID", "0"}};

TEST(RankVariables, NoLauncherMeansThreads) {
  EXPECT_FALSE(find({}));
  EXPECT_FALSE(find({{"MASTER_ADDR", "node-1"}, {"MASTER_PORT", "1"}, {"PATH", "/bin"}}));
}

TEST(RankVariables, OfTorchrun) {
  const auto place = find(kTorchrun);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->family, Launcher::torchrun);
  EXPECT_EQ(place->rank, 5);
  EXPECT_EQ(place->world_size, 8);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->local_size, 4);
  EXPECT_EQ(place->address, "node-1");
  EXPECT_EQ(place->port, 29501);
  EXPECT_EQ(place->job, "x7/0");
  // Set by hand: rank, size and address will do.
  const auto bare = find({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "fd00::2"}});
  EXPECT_EQ(bare->port, 29501);
  EXPECT_EQ(bare->address, "fd00::2");
  EXPECT_FALSE(bare->local_rank);
}

TEST(RankVariables, OfOpenMpi) {
  const auto place = find(kOpenMpi);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->family, Launcher::openmpi);
  EXPECT_EQ(place->rank, 2);
  EXPECT_EQ(place->world_size, 4);
  EXPECT_EQ(place->local_size, 4);
  EXPECT_EQ(place->address, "127.0.0.1");
  EXPECT_GE(place->port, 20000);
  EXPECT_LT(place->port, 30000);
  EXPECT_EQ(place->port, find(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}}))->port);
  EXPECT_NE(place->port, find(with(kOpenMpi, {{"PMIX_NAMESPACE", "1678508034"}}))->port);
  // Several machines: somebody has to say which one rank 0's is.
  const Variables wide = with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "8"}});
  EXPECT_THAT(refusal(wide), AllOf(HasSubstr("openmpi says rank 2 of 8"), HasSubstr("run.control_address")));
  EXPECT_EQ(find(with(wide, {{"MASTER_ADDR", "10.0.0.1"}}))->address, "10.0.0.1");
}

TEST(RankVariables, OfMpich) {
  const auto place = find(kMpich);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->family, Launcher::mpich);
  EXPECT_EQ(place->rank, 1);
  EXPECT_EQ(place->world_size, 2);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->address, "127.0.0.1");
  EXPECT_EQ(place->port, 29501);
}

TEST(RankVariables, OfSlurm) {
  const auto place = find(kSlurm);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->family, Launcher::slurm);
  EXPECT_EQ(place->rank, 3);
  EXPECT_EQ(place->world_size, 6);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->local_size, 2);
  EXPECT_EQ(place->address, "gpu07");
  EXPECT_EQ(place->job, "4711.0");
  EXPECT_NE(place->port, find(with(kSlurm, {{"SLURM_STEP_ID", "1"}}))->port);
  EXPECT_EQ(find(with(kSlurm, {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "4000"}}))->address, "head");
  EXPECT_EQ(find(with(kSlurm, {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "4000"}}))->port, 4001);
  // Tasks per node, of this node.
  const auto local = [](const std::string& list, const std::string& node) {
    return find(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", list}, {"SLURM_NODEID", node}}))->local_size;
  };
  EXPECT_EQ(local("3,2(x2),5", "0"), 3);
  EXPECT_EQ(local("3,2(x2),5", "2"), 2);
  EXPECT_EQ(local("3,2(x2),5", "3"), 5);
}

TEST(RankVariables, OfABatchScriptOrOneTaskAreNone) {
  Variables script = kSlurm;
  script.erase("SLURM_STEP_NODELIST");
  EXPECT_FALSE(find(script));
  // The shell of "srun --pty bash", and torchrun called in it.
  const Variables shell =
      with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_LOCALID", "0"}});
  EXPECT_FALSE(find(shell));
  EXPECT_EQ(find(with(shell, kTorchrun))->rank, 5);
  EXPECT_FALSE(find({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(find({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}));
}

TEST(RankVariables, WhatTheRunStatesBeatsThem) {
  RunConfig run;
  run.control_address = "10.1.2.3";
  run.control_port = 7777;
  EXPECT_EQ(find(kTorchrun, run)->address, "10.1.2.3");
  EXPECT_EQ(find(kTorchrun, run)->port, 7777);
  run.launcher = Launcher::none;
  EXPECT_FALSE(find(kTorchrun, run));
  run.launcher = Launcher::slurm;
  EXPECT_EQ(find(with(kSlurm, kTorchrun), run)->rank, 3);
  run.launcher = Launcher::torchrun;
  EXPECT_EQ(find(with(kSlurm, kTorchrun), run)->rank, 5);
  EXPECT_FALSE(find({}, run));
  EXPECT_THAT(refusal(kSlurm, run), AllOf(HasSubstr("run.launcher = torchrun"), HasSubstr("RANK, WORLD_SIZE"),
                                          HasSubstr("not set"), HasSubstr("slurm says rank 3 of 6")));
  run.control_address = "two words";
  EXPECT_THAT(refusal(kTorchrun, run), HasSubstr("run.control_address is \"two words\""));
}

TEST(RankVariables, TwoLaunchersThatDisagreeAreBothNamed) {
  EXPECT_THAT(refusal(with(kSlurm, kTorchrun)),
              AllOf(HasSubstr("torchrun says rank 5 of 8 (RANK, WORLD_SIZE)"),
                    HasSubstr("slurm says rank 3 of 6 (SLURM_PROCID, SLURM_STEP_NUM_TASKS)"),
                    HasSubstr("run.launcher")));
  EXPECT_THAT(refusal(with(kMpich, kOpenMpi)), AllOf(HasSubstr("openmpi"), HasSubstr("mpich")));
  // srun --mpi=pmi2 sets both families, equal; Slurm's say where rank 0 is.
  const auto both = find(with(kSlurm, {{"PMI_RANK", "3"}, {"PMI_SIZE", "6"}}));
  EXPECT_EQ(both->rank, 3);
  EXPECT_EQ(both->world_size, 6);
  EXPECT_EQ(both->address, find(kSlurm)->address);
}

TEST(RankVariables, ValuesThatMakeNoSenseAreRefusedByName) {
  for (const char* bad :
       {"", " ", "x", "-1", "+1", "1.5", "0x1", "1 ", "99999999999999999999", "2000000", "8", "1\n"})
    EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", bad}})), HasSubstr("the variable RANK is")) << bad;
  for (const char* bad : {"", "0", "-8", "eight", "1048577"})
    EXPECT_THAT(refusal(with(kTorchrun, {{"WORLD_SIZE", bad}})), HasSubstr("the variable WORLD_SIZE is"))
        << bad;
  for (const char* bad : {"0", "65535", "65536", "http"})
    EXPECT_THAT(refusal(with(kTorchrun, {{"MASTER_PORT", bad}})), HasSubstr("MASTER_PORT")) << bad;
  for (const std::string& bad : {std::string(), std::string("a b"), std::string("a/b"), std::string("$(x)"),
                                 std::string(300, 'a'), std::string("a\0b", 3)})
    EXPECT_THAT(refusal(with(kTorchrun, {{"MASTER_ADDR", bad}})), HasSubstr("MASTER_ADDR")) << bad;
  EXPECT_THAT(refusal(with(kTorchrun, {{"LOCAL_RANK", "4"}})),
              HasSubstr("LOCAL_RANK is 4, which is not below"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}})), HasSubstr("LOCAL_WORLD_SIZE"));
  EXPECT_THAT(refusal(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x"}})),
              HasSubstr("SLURM_STEP_TASKS_PER_NODE"));
  EXPECT_THAT(refusal(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x0)"}})),
              HasSubstr("SLURM_STEP_TASKS_PER_NODE"));
  EXPECT_THAT(refusal(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2"}})), HasSubstr("no node number 1"));
  // Only printable, short excerpts of what came from outside.
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", std::string(500, '\x1b')}})),
              AllOf(HasSubstr("???"), testing::Not(HasSubstr("\x1b")), testing::SizeIs(testing::Lt(250u))));
}

TEST(RankVariables, HalfAFamilyIsRefused) {
  EXPECT_THAT(refusal({{"RANK", "0"}}), AllOf(HasSubstr("RANK is set"), HasSubstr("WORLD_SIZE is not")));
  EXPECT_THAT(refusal({{"WORLD_SIZE", "4"}}),
              AllOf(HasSubstr("WORLD_SIZE is set"), HasSubstr("RANK is not")));
  EXPECT_THAT(refusal({{"PMI_SIZE", "4"}}), HasSubstr("PMI_RANK is not"));
  EXPECT_THAT(refusal({{"RANK", "0"}, {"WORLD_SIZE", "4"}}),
              HasSubstr("set MASTER_ADDR or run.control_address"));
}

TEST(FirstHost, ExpandsSlurmsLists) {
  EXPECT_EQ(first_host("node7"), "node7");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("gpu[07-09,12],login"), "gpu07");
  EXPECT_EQ(first_host("gpu[12]"), "gpu12");
  EXPECT_EQ(first_host("gpu[3,1]"), "gpu3");
  EXPECT_EQ(first_host("r[1-2]n[004-008]-ib.cluster"), "r1n004-ib.cluster");
  for (const char* bad : {"", ",", "[", "gpu[", "gpu[]", "gpu[,1]", "gpu[-3]", "gpu[a-b]", "gpu[1-2", "a b",
                          "a]", "$x", "gpu[1[2]]"})
    EXPECT_THAT(message_of([&] { first_host(bad); }), HasSubstr("SLURM_STEP_NODELIST")) << bad;
  EXPECT_THAT(message_of([&] { first_host(std::string(300, 'n')); }), HasSubstr("SLURM_STEP_NODELIST"));
}

TEST(RankVariables, AnyTextsGiveARankOrAConfigError) {
  const std::string alphabet = "0123456789,-[]()x .:a";
  int found = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    Variables variables = i % 4 == 0 ? kTorchrun : i % 4 == 1 ? kOpenMpi : i % 4 == 2 ? kMpich : kSlurm;
    for (auto& [name, value] : variables) {
      if (random_below(3, 1, i, fingerprint(name)) != 0) continue;
      std::string text;
      for (uint64_t k = 0; k < random_below(8, 2, i, fingerprint(name)); ++k)
        text += alphabet[random_below(alphabet.size(), 3 + k, i, fingerprint(name))];
      value = text;
    }
    try {
      const auto place = find(variables);
      found += place.has_value();
      if (place) {
        EXPECT_LT(place->rank, place->world_size);
        EXPECT_TRUE(place->port >= 1 && place->port <= 65535);
        EXPECT_FALSE(place->address.empty());
      }
    } catch (const ConfigError&) {
    }
  }
  EXPECT_GT(found, 100);
}

}  // namespace
}  // namespace moesaic::test

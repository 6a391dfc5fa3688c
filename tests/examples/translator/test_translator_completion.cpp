#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "examples/program.hpp"
#include "folders.hpp"

using namespace eigenformer::testing;

namespace {

/// What a script of bash prints; "absent" when there is no bash.
std::string bash(const std::string& script) {
  const TemporaryFolder folder;
  const std::string path = folder.write("script", script).string(), out = (folder.path() / "out").string();
  const int status = std::system(("bash '" + path + "' > '" + out + "' 2>&1").c_str());
  return WIFEXITED(status) && WEXITSTATUS(status) == 127 ? "absent" : read_file(out);
}

/// What bash offers for the last of the words, one in each line.
std::vector<std::string> offered(const std::string& script, const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += " '" + word + "'";
  return lines_of(bash(script + "\ncd '" + fixtures_folder().string() + "'\nCOMP_WORDS=(" + all +
                       ")\nCOMP_CWORD=" + std::to_string(words.size() - 1) +
                       "\n_translator\nfor reply in \"${COMPREPLY[@]}\"; do echo \"$reply\"; done\n"));
}

bool has(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace

TEST_CASE("completion: bash completes commands, options, words and files") {
  const Ended script = run("translator", {"completion", "bash"});
  REQUIRE(script.code == 0);
  CHECK(script.err == "");
  using Words = std::vector<std::string>;
  const Words commands = offered(script.out, {"translator", ""});
  if (commands == Words{"absent"}) return;
  // All commands that help lists.
  const std::string help = run("translator", {"--help"}).out;
  int listed = 0;
  for (const std::string& line : lines_of(help.substr(help.find("Subcommands:")))) {
    if (!line.starts_with("  ") || line.starts_with("   ")) continue;
    const std::string name = line.substr(2, line.find(' ', 2) - 2);
    CAPTURE(name);
    CHECK(has(commands, name));
    ++listed;
  }
  CHECK(listed >= 15);
  CHECK(offered(script.out, {"translator", "trai"}) == Words{"train"});
  CHECK(has(offered(script.out, {"translator", "--v"}), "--version"));
  CHECK(offered(script.out, {"translator", "translate", "--beam"}) ==
        Words{"--beam", "--beam-size", "--beam-groups"});
  CHECK(has(offered(script.out, {"translator", "train", "--pre"}), "--pre-norm"));
  CHECK(has(offered(script.out, {"translator", "train", "--no-b"}), "--no-bias"));
  CHECK(offered(script.out, {"translator", "train", "--nothing-like-it"}).empty());
  // Words of an option, also after its =.
  CHECK(offered(script.out, {"translator", "train", "--activation", "gelu"}) == Words{"gelu", "gelu_tanh"});
  CHECK(offered(script.out, {"translator", "translate", "--input-format", ""}) ==
        Words{"text", "html", "xml"});
  CHECK(offered(script.out, {"translator", "translate", "--input-format", "="}) ==
        Words{"text", "html", "xml"});
  CHECK(offered(script.out, {"translator", "translate", "--input-format", "=", "x"}) == Words{"xml"});
  // Numbers have none; a path has those of files.
  CHECK(offered(script.out, {"translator", "translate", "--threads", ""}).empty());
  CHECK(offered(script.out, {"translator", "translate", "--model", "translation_m"}) ==
        Words{"translation_model"});
}

TEST_CASE(
    "completion: scripts of zsh and fish have every option; their syntax is right where they are installed") {
  for (const std::string shell : {"zsh", "fish"}) {
    CAPTURE(shell);
    const std::string script = run("translator", {"completion", shell}).out;
    CHECK(script.find("activation") != std::string::npos);
    CHECK(script.find("elu_plus_one") != std::string::npos);
    const TemporaryFolder folder;
    const std::string path = folder.write("script", script).string();
    const std::string said =
        bash("command -v " + shell + " > /dev/null || exit 0\n" + shell + " -n '" + path + "'\n");
    if (said != "absent") CHECK(said == "");
  }
  const Ended wrong = run("translator", {"completion", "sh"});
  CHECK(wrong.code == 1);
  CHECK(wrong.err.find("expected one of bash, zsh, fish") != std::string::npos);
}

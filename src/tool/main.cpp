#include <csignal>

#include "driver/commands.h"
#include "tool/crash_report.h"

int main(int argc, char** argv) {
    tilewright::report_crashes();
    std::signal(SIGXFSZ, SIG_IGN);  // a write past `ulimit -f` fails with an error message
    return tilewright::run_command(argc, argv);
}

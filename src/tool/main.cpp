#include <csignal>

#include "driver/commands.h"

int main(int argc, char** argv) {
    std::signal(SIGXFSZ, SIG_IGN);  // a write past `ulimit -f` fails with an error message
    return tilewright::run_command(argc, argv);
}

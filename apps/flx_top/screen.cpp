#include "apps/flx_top/screen.h"

#include <curses.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <ctime>

namespace flx::top {

bool show(double interval_s, bool explain, const std::function<std::vector<std::string>(size_t, bool)> &lines) {
    if (isatty(STDOUT_FILENO) == 0)
        return false;
    std::setlocale(LC_ALL, "");
    if (newterm(nullptr, stdout, stdin) == nullptr)
        return false;
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    curs_set(0);
    timeout(static_cast<int>(interval_s * 1000));
    size_t top = 0;
    for (bool more = true; more;) {
        const auto width = static_cast<size_t>(std::max(COLS, 20));
        const auto height = static_cast<size_t>(std::max(LINES, 3)) - 1;
        const std::vector<std::string> all = lines(width, explain);
        top = std::min(top, all.size() > height ? all.size() - height : 0);
        erase();
        for (size_t i = 0; i < height && top + i < all.size(); ++i)
            mvaddnstr(static_cast<int>(i), 0, all[top + i].c_str(), static_cast<int>(width));
        attron(A_REVERSE);
        mvaddnstr(static_cast<int>(height), 0, "q quits  e explains  arrows, page keys scroll",
                  static_cast<int>(width));
        attroff(A_REVERSE);
        refresh();
        switch (getch()) {
            case 'q':
            case 27:  // escape
                more = false;
                break;
            case 'e':
                explain = !explain;
                break;
            case KEY_UP:
                top -= top > 0 ? 1 : 0;
                break;
            case KEY_DOWN:
                ++top;
                break;
            case KEY_PPAGE:
                top -= std::min(top, height);
                break;
            case KEY_NPAGE:
                top += height;
                break;
            default:
                break;
        }
    }
    endwin();
    return true;
}

}  // namespace flx::top

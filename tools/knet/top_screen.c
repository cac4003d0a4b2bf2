/* The screen of `knet top`. */
#include <curses.h>
#include <langinfo.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "top.h"
#include "utf8.h"

/* <locale.h> is hidden by the header of this name in alloc/base. */
extern char *setlocale(int category, const char *locale);

enum { ESCAPE = 27, DEPTH_MAX = 99, WAIT_MS_MAX = 3600000 };

typedef struct screen {
    const kn__live *live;
    kn__top_view *view;
    kn__text lines;
    int top; /* the first line that is shown */
    bool paused, quit;
    char status[160]; /* why nothing is new; "": something is */
} screen;

static const char *const sort_names[] = {
    [KN__SORT_TIME] = "time",  [KN__SORT_CALLS] = "calls", [KN__SORT_ALLOC] = "alloc",
    [KN__SORT_PEAK] = "peak",  [KN__SORT_GPU] = "gpu",     [KN__SORT_NAME] = "name",
    [KN__SORT_FIRST] = "first"};
enum { N_SORTS = sizeof sort_names / sizeof *sort_names };

static int count_lines(const kn__text *text) {
    int n = 0;
    for (const char *at = text->data; at && *at; at++) n += *at == '\n';
    return n;
}

static void scroll_to(screen *s, int line) {
    int most = count_lines(&s->lines) - (LINES - 1);
    s->top = line > most ? most : line;
    if (s->top < 0) s->top = 0;
}

/* Draws n bytes, at most as many columns as the terminal has: curses would continue in the next
 * line. */
static void draw_line(int y, const char *text, size_t n) {
    int columns = 0;
    size_t fits = 0;
    while (fits < n) {
        size_t bytes = kn__utf8_bytes(text + fits);
        columns += kn__utf8_columns(text + fits);
        if (columns > COLS) break;
        fits += bytes ? bytes : 1;
    }
    mvaddnstr(y, 0, text, (int)fits);
}

static void draw_head(const screen *s) {
    kn__text head = {0};
    kn__text_printf(&head, " %ld ", s->live->pid);
    kn__text_shown(&head, s->live->command, COLS > 60 ? COLS - 52 : 8);
    kn__text_printf(&head, "  by %s%s  q s m +- space", sort_names[s->view->sort],
                    s->paused ? ", paused" : "");
    const char *shown = s->status[0] ? s->status : head.data ? head.data : "";
    attron(A_REVERSE);
    mvhline(0, 0, ' ', COLS);
    draw_line(0, shown, strlen(shown));
    attroff(A_REVERSE);
    kn__text_release(&head);
}

static void draw(const screen *s) {
    const char *at = s->lines.data ? s->lines.data : "";
    erase();
    for (int skip = s->top; skip > 0 && *at; skip--) {
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
    for (int y = 1; y < LINES && *at; y++) {
        size_t n = strcspn(at, "\n");
        draw_line(y, at, n);
        at += n + (at[n] == '\n');
    }
    draw_head(s);
    refresh();
}

/* True: the program has ended. */
static bool ask(screen *s) {
    kn__text lines = {0};
    kn_status status = kn__top_lines(&lines, s->live, s->view, COLS);
    s->status[0] = '\0';
    if (status >= 0) {
        kn__text_release(&s->lines);
        s->lines = lines;
        scroll_to(s, s->top);
        return false;
    }
    kn__text_release(&lines);
    if (status == KN_ERR_UNSUPPORTED) return true;
    snprintf(s->status, sizeof s->status, " %.150s", kn_last_error()->message);
    return false;
}

/* True: the screen changes at once. */
static bool change_view(screen *s, int key) {
    kn__top_view *v = s->view;
    switch (key) {
        case 's':
            v->sort = (kn__sort)((v->sort + 1) % N_SORTS);
            return true;
        case 'm':
            v->memory = !v->memory;
            return true;
        case '+':
            if (v->depth) v->depth = v->depth < DEPTH_MAX ? v->depth + 1 : 0;
            return true;
        case '-':
            v->depth = v->depth == 0 ? 3 : v->depth > 1 ? v->depth - 1 : 1;
            return true;
        case ' ':
            s->paused = !s->paused;
            return !s->paused;
        default:
            return false;
    }
}

static bool handle(screen *s, int key) {
    switch (key) {
        case 'q':
        case 'Q':
        case ESCAPE:
            s->quit = true;
            return false;
        case KEY_DOWN:
            scroll_to(s, s->top + 1);
            return false;
        case KEY_UP:
            scroll_to(s, s->top - 1);
            return false;
        case KEY_NPAGE:
            scroll_to(s, s->top + LINES - 2);
            return false;
        case KEY_PPAGE:
            scroll_to(s, s->top - LINES + 2);
            return false;
        case KEY_HOME:
            scroll_to(s, 0);
            return false;
        case KEY_RESIZE:
            return true;
        default:
            return change_view(s, key);
    }
}

/* --- the end --- */

static volatile sig_atomic_t ended_by; /* a signal */

/* In the background the terminal would stop the process again before it has left the screen. */
static void on_signal(int signal_number) {
    signal(SIGTTOU, SIG_IGN);
    signal(SIGTTIN, SIG_IGN);
    ended_by = signal_number;
}

/* An ignored signal stays ignored. Without SA_RESTART: getch returns. */
static void signals_set(void (*handler)(int)) {
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction action = {.sa_handler = handler};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct sigaction before;
        sigaction(ends[i], NULL, &before);
        if (before.sa_handler != SIG_IGN) sigaction(ends[i], &action, NULL);
    }
}

/* Where SIGHUP is ignored nothing else says so, and getch doesn't wait any more. */
static bool terminal_is_gone(void) {
    struct pollfd in = {.fd = STDIN_FILENO};
    return poll(&in, 1, 0) > 0; /* POLLHUP, POLLERR, POLLNVAL */
}

/* True: the program has ended. */
static bool show(screen *s, int every_ms) {
    bool due = true;
    while (!s->quit && !ended_by) {
        if (due && ask(s)) return true;
        draw(s);
        timeout(every_ms);
        int key = getch();
        if (key == ERR && terminal_is_gone()) ended_by = SIGHUP;
        due = key == ERR ? !s->paused : handle(s, key);
    }
    return false;
}

/* NULL: the terminal is not known, or can't move its cursor. */
static SCREEN *make_screen(void) {
    SCREEN *made = newterm(NULL, stdout, stdin);
    if (!made || tigetstr("cup")) return made;
    endwin();
    delscreen(made);
    return NULL;
}

kn_status kn__top_screen(kn__top_end *end, const kn__live *live, kn__top_view *view,
                         double every_s) {
    setlocale(__LC_CTYPE, "");
    signals_set(
        on_signal); /* before newterm, whose own handlers end the command with exit code 1 */
    SCREEN *terminal = make_screen();
    if (!terminal) {
        const char *type = getenv("TERM");
        return KN_FAIL(KN_ERR_UNSUPPORTED, "no screen on a terminal of type '%s': use --once",
                       type ? type : "");
    }
    screen s = {.live = live, .view = view};
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    curs_set(0);
    double ms = every_s * 1000;
    end->program_ended = show(&s, ms < 10 ? 10 : ms > WAIT_MS_MAX ? WAIT_MS_MAX : (int)ms);
    endwin();
    delscreen(terminal);
    signals_set(SIG_DFL);
    end->last = s.lines;
    end->signal_number = ended_by;
    return KN_OK;
}

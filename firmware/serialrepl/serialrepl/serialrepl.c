// serialrepl: gives MicroPython's unix port the REPL that boards have on their serial line.
//
// The unix port 1.25 has no raw REPL, so mpremote cannot drive it. This module includes
// MicroPython's own shared/runtime/pyexec.c, so that the friendly, raw and raw-paste REPL are
// MicroPython's; only the terminal handling below is new. It also gives sys.stdin and sys.stdout
// what they do on boards (shared/runtime/sys_stdio_mphal.c): text ends its lines with CR LF, .buffer
// changes nothing, and a read waits until there is all that was asked for.
//
//   serialrepl.open(raw)   make stdin/stdout a serial line; raw = start in the raw REPL
//   serialrepl.file(name)  run a file as boards run boot.py; False if it ended by SystemExit
//   serialrepl.repl()      serve the REPL until a soft reset is asked for; True if in raw mode
//   serialrepl.halt(code)  end the process at once with this exit code, as a reset ends a chip

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "py/mphal.h"
#include "py/runtime.h"
#include "py/stream.h"
// pyexec.c prints MICROPY_BANNER_MACHINE, which on this port is spelled with these macros.
#include "extmod/modplatform.h"

// The unix port's mp_hal_stdin_rx_chr turns LF into CR (right for a keyboard, wrong for the
// source text that the raw REPL reads) and end of file into Ctrl-D (an endless soft reset).
static int serialrepl_rx_chr(void) {
    unsigned char c;
    ssize_t count;
    MP_HAL_RETRY_SYSCALL(count, read(STDIN_FILENO, &c, 1), {});
    if (count != 1) {
        exit(1); // the line is gone, and with it the board
    }
    return c;
}
#define mp_hal_stdin_rx_chr serialrepl_rx_chr

static bool is_open;

// The unix port leaves the ends of lines to a terminal. Wrapped by the linker.
void __real_mp_hal_stdout_tx_strn_cooked(const char *str, size_t len);
void __wrap_mp_hal_stdout_tx_strn_cooked(const char *str, size_t len);
void __wrap_mp_hal_stdout_tx_strn_cooked(const char *str, size_t len) {
    if (!is_open) {
        __real_mp_hal_stdout_tx_strn_cooked(str, len);
        return;
    }
    const char *last = str;
    for (const char *end = str + len; str < end; str++) {
        if (*str == '\n') {
            mp_hal_stdout_tx_strn(last, str - last);
            mp_hal_stdout_tx_strn("\r\n", 2);
            last = str + 1;
        }
    }
    if (str > last) {
        mp_hal_stdout_tx_strn(last, str - last);
    }
}

#include "shared/runtime/pyexec.c"

static struct termios line_settings;

// A signal that comes after MicroPython looked for a pending exception and before it waits in the
// kernel (time.sleep: before its select) would wait there too. So it is followed by others, each of
// which ends such a wait with EINTR, until the exception has been raised.
#define AGAIN_NS (10000000)
static timer_t again;

static void set_again(long ns) {
    struct itimerspec times = { .it_interval = { .tv_nsec = ns }, .it_value = { .tv_nsec = ns } };
    timer_settime(again, 0, &times, NULL);
}

static void interrupt_handler(int signum) {
    (void)signum;
    mp_sched_keyboard_interrupt();
    set_again(AGAIN_NS);
}

static void again_handler(int signum) {
    (void)signum;
    if (MP_STATE_MAIN_THREAD(mp_pending_exception) == MP_OBJ_NULL) {
        set_again(0);
    }
}

// The line is 8-bit clean. While `interrupt` is on, Ctrl-C (and nothing else) is a signal.
static void set_line(bool interrupt) {
    line_settings.c_iflag &= ~(BRKINT | ICRNL | INLCR | IGNCR | INPCK | ISTRIP | IXON | IXOFF);
    line_settings.c_cflag = (line_settings.c_cflag & ~(CSIZE | PARENB)) | CS8;
    line_settings.c_lflag = NOFLSH | (interrupt ? ISIG : 0);
    line_settings.c_oflag &= ~OPOST;
    line_settings.c_cc[VINTR] = CHAR_CTRL_C;
    line_settings.c_cc[VQUIT] = _POSIX_VDISABLE;
    line_settings.c_cc[VSUSP] = _POSIX_VDISABLE;
    line_settings.c_cc[VMIN] = 1;
    line_settings.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &line_settings);
}

// pyexec calls this before and after user code, and micropython.kbd_intr() at any time.
void __real_mp_hal_set_interrupt_char(char c);
void __wrap_mp_hal_set_interrupt_char(char c);
void __wrap_mp_hal_set_interrupt_char(char c) {
    if (!is_open) {
        __real_mp_hal_set_interrupt_char(c);
        return;
    }
    set_line(c == CHAR_CTRL_C);
}

// What the objects of the unix port have in common.
typedef struct _stdio_obj_t {
    mp_obj_base_t base;
    int fd;
} stdio_obj_t;
extern stdio_obj_t mp_sys_stdin_obj, mp_sys_stdout_obj, mp_sys_stderr_obj;
extern stdio_obj_t mp_sys_stdin_buffer_obj, mp_sys_stdout_buffer_obj, mp_sys_stderr_buffer_obj;
extern const mp_obj_type_t mp_type_vfs_posix_fileio;

static mp_uint_t line_read(mp_obj_t self, void *buffer, mp_uint_t size, int *errcode) {
    bool is_text = MP_OBJ_TO_PTR(self) == &mp_sys_stdin_obj;
    for (mp_uint_t i = 0; i < size; i++) {
        int c = serialrepl_rx_chr();
        ((byte *)buffer)[i] = is_text && c == '\r' ? '\n' : c;
    }
    return size;
}

static mp_uint_t line_write(mp_obj_t self, const void *buffer, mp_uint_t size, int *errcode) {
    void *object = MP_OBJ_TO_PTR(self);
    if (object == &mp_sys_stdout_obj || object == &mp_sys_stderr_obj) {
        __wrap_mp_hal_stdout_tx_strn_cooked(buffer, size);
        return size;
    }
    return mp_hal_stdout_tx_strn(buffer, size);
}

static mp_uint_t line_ioctl(mp_obj_t self, mp_uint_t request, uintptr_t arg, int *errcode) {
    if (request == MP_STREAM_CLOSE) {
        return 0;
    }
    const mp_stream_p_t *file = MP_OBJ_TYPE_GET_SLOT(&mp_type_vfs_posix_fileio, protocol);
    return file->ioctl(self, request, arg, errcode);
}

static void line_attr(mp_obj_t self, qstr attr, mp_obj_t *dest) {
    stdio_obj_t *object = MP_OBJ_TO_PTR(self);
    if (dest[0] != MP_OBJ_NULL) {
        return;
    }
    if (attr == MP_QSTR_buffer) {
        dest[0] = MP_OBJ_FROM_PTR(object == &mp_sys_stdin_obj ? &mp_sys_stdin_buffer_obj :
            object == &mp_sys_stdout_obj ? &mp_sys_stdout_buffer_obj : &mp_sys_stderr_buffer_obj);
    } else {
        dest[1] = MP_OBJ_SENTINEL;
    }
}

static const mp_rom_map_elem_t line_locals_table[] = {
    { MP_ROM_QSTR(MP_QSTR_read), MP_ROM_PTR(&mp_stream_read_obj) },
    { MP_ROM_QSTR(MP_QSTR_readinto), MP_ROM_PTR(&mp_stream_readinto_obj) },
    { MP_ROM_QSTR(MP_QSTR_readline), MP_ROM_PTR(&mp_stream_unbuffered_readline_obj) },
    { MP_ROM_QSTR(MP_QSTR_readlines), MP_ROM_PTR(&mp_stream_unbuffered_readlines_obj) },
    { MP_ROM_QSTR(MP_QSTR_write), MP_ROM_PTR(&mp_stream_write_obj) },
    { MP_ROM_QSTR(MP_QSTR_flush), MP_ROM_PTR(&mp_stream_flush_obj) },
    { MP_ROM_QSTR(MP_QSTR_close), MP_ROM_PTR(&mp_identity_obj) },
};
static MP_DEFINE_CONST_DICT(line_locals, line_locals_table);

static const mp_stream_p_t text_stream = {
    .read = line_read, .write = line_write, .ioctl = line_ioctl, .is_text = true,
};
static const mp_stream_p_t bytes_stream = {
    .read = line_read, .write = line_write, .ioctl = line_ioctl,
};
static MP_DEFINE_CONST_OBJ_TYPE(
    text_type, MP_QSTR_TextIOWrapper, MP_TYPE_FLAG_ITER_IS_STREAM,
    protocol, &text_stream, attr, line_attr, locals_dict, &line_locals
    );
static MP_DEFINE_CONST_OBJ_TYPE(
    bytes_type, MP_QSTR_FileIO, MP_TYPE_FLAG_ITER_IS_STREAM,
    protocol, &bytes_stream, locals_dict, &line_locals
    );

static void behave_as_a_board(void) {
    mp_sys_stdin_obj.base.type = mp_sys_stdout_obj.base.type = mp_sys_stderr_obj.base.type = &text_type;
    mp_sys_stdin_buffer_obj.base.type = mp_sys_stdout_buffer_obj.base.type = &bytes_type;
    mp_sys_stderr_buffer_obj.base.type = &bytes_type;
}

static mp_obj_t serialrepl_open(mp_obj_t raw) {
    if (tcgetattr(STDIN_FILENO, &line_settings) != 0) {
        mp_raise_OSError(errno);
    }
    pyexec_mode_kind = mp_obj_is_true(raw) ? PYEXEC_MODE_RAW_REPL : PYEXEC_MODE_FRIENDLY_REPL;
    // Installed for good, so that a late signal finds a handler and never the default action.
    if (!is_open) {
        struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
        if (timer_create(CLOCK_MONOTONIC, &event, &again) != 0) {
            mp_raise_OSError(errno);
        }
        // Neither restarts the call that it interrupts.
        struct sigaction action = { .sa_handler = again_handler };
        sigemptyset(&action.sa_mask);
        sigaction(SIGALRM, &action, NULL);
        action.sa_handler = interrupt_handler;
        sigaction(SIGINT, &action, NULL);
    }
    is_open = true;
    behave_as_a_board();
    set_line(false);
    return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_1(serialrepl_open_obj, serialrepl_open);

// Boards run boot.py, main.py and the REPL in __main__, not in the module that called us.
static mp_obj_dict_t *enter_main(void) {
    mp_obj_dict_t *globals = mp_globals_get();
    mp_globals_set(&MP_STATE_VM(dict_main));
    mp_locals_set(&MP_STATE_VM(dict_main));
    return globals;
}

static void leave_main(mp_obj_dict_t *globals) {
    mp_globals_set(globals);
    mp_locals_set(globals);
}

static mp_obj_t serialrepl_file(mp_obj_t name) {
    mp_obj_dict_t *globals = enter_main();
    int result = pyexec_file_if_exists(mp_obj_str_get_str(name));
    leave_main(globals);
    return mp_obj_new_bool((result & PYEXEC_FORCED_EXIT) == 0);
}
static MP_DEFINE_CONST_FUN_OBJ_1(serialrepl_file_obj, serialrepl_file);

static mp_obj_t serialrepl_repl(void) {
    mp_obj_dict_t *globals = enter_main();
    int result = 0;
    while ((result & PYEXEC_FORCED_EXIT) == 0) {
        set_line(false);
        result = pyexec_mode_kind == PYEXEC_MODE_RAW_REPL ? pyexec_raw_repl() : pyexec_friendly_repl();
    }
    leave_main(globals);
    return mp_obj_new_bool(pyexec_mode_kind == PYEXEC_MODE_RAW_REPL);
}
static MP_DEFINE_CONST_FUN_OBJ_0(serialrepl_repl_obj, serialrepl_repl);

static mp_obj_t serialrepl_halt(mp_obj_t code) {
    _exit(mp_obj_get_int(code));
}
static MP_DEFINE_CONST_FUN_OBJ_1(serialrepl_halt_obj, serialrepl_halt);

static const mp_rom_map_elem_t serialrepl_globals_table[] = {
    { MP_ROM_QSTR(MP_QSTR___name__), MP_ROM_QSTR(MP_QSTR_serialrepl) },
    { MP_ROM_QSTR(MP_QSTR_open), MP_ROM_PTR(&serialrepl_open_obj) },
    { MP_ROM_QSTR(MP_QSTR_file), MP_ROM_PTR(&serialrepl_file_obj) },
    { MP_ROM_QSTR(MP_QSTR_repl), MP_ROM_PTR(&serialrepl_repl_obj) },
    { MP_ROM_QSTR(MP_QSTR_halt), MP_ROM_PTR(&serialrepl_halt_obj) },
};
static MP_DEFINE_CONST_DICT(serialrepl_globals, serialrepl_globals_table);

const mp_obj_module_t serialrepl_module = {
    .base = { &mp_type_module },
    .globals = (mp_obj_dict_t *)&serialrepl_globals,
};
MP_REGISTER_MODULE(MP_QSTR_serialrepl, serialrepl_module);

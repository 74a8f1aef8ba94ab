package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// fileState is a line of "file stat".
type fileState struct {
	Path    string `json:"path"`
	Type    string `json:"type"` // of fs.FileMode: d, L, p, S, c, b or "-" for a file
	Mode    string `json:"mode"` // octal, with the set-id and sticky bits
	UID     uint32 `json:"uid"`
	GID     uint32 `json:"gid"`
	Size    int64  `json:"size"`
	Link    string `json:"link,omitempty"`
	Content string `json:"content,omitempty"` // the first 1000 bytes of a file
	Error   string `json:"error,omitempty"`
}

// fileCommand: stat PATH..., write PATH TEXT, or watch PATH.
func fileCommand(set *flag.FlagSet) func(context.Context, []string) error {
	every := set.Duration("every", 200*time.Millisecond, "`time` between looks of watch")
	return func(ctx context.Context, args []string) error {
		switch {
		case len(args) > 1 && args[0] == "stat":
			for _, path := range args[1:] {
				b, err := json.Marshal(stat(path))
				if err != nil {
					return err
				}
				fmt.Println(string(b))
			}
			return nil
		case len(args) == 3 && args[0] == "write":
			if err := os.WriteFile(args[1], []byte(args[2]), 0o644); err != nil {
				return err
			}
			fmt.Println("written", args[1])
			return nil
		case len(args) == 2 && args[0] == "watch":
			ctx, stop := terminated(ctx)
			defer stop()
			watch(ctx, args[1], *every)
			return nil
		}
		return errors.New("file: want stat PATH..., write PATH TEXT or watch PATH")
	}
}

func stat(path string) fileState {
	s := fileState{Path: path}
	info, err := os.Lstat(path)
	if err != nil {
		s.Error = err.Error()
		return s
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		s.Error = "no owner is known"
		return s
	}
	s.Type = info.Mode().Type().String()[:1]
	s.Mode = fmt.Sprintf("%04o", sys.Mode&0o7777)
	s.UID, s.GID, s.Size = sys.Uid, sys.Gid, info.Size()
	if info.Mode()&fs.ModeSymlink != 0 {
		s.Link, _ = os.Readlink(path) // it was just seen to be a link
	}
	if target, err := os.Stat(path); err == nil && target.Mode().IsRegular() {
		b, err := os.ReadFile(path)
		if err != nil {
			s.Error = err.Error()
		}
		s.Content = string(b[:min(len(b), 1000)])
	}
	return s
}

// watch prints a file's content whenever it is another one, until ctx ends.
func watch(ctx context.Context, path string, every time.Duration) {
	last := []byte("\x00")
	for {
		b, err := os.ReadFile(path)
		if err != nil {
			b = []byte(err.Error())
		}
		if !bytes.Equal(b, last) {
			fmt.Printf("%d %q\n", time.Now().UnixNano(), b)
			last = b
		}
		if wait(ctx, every) != nil {
			return
		}
	}
}

// fillCommand writes the file PATH with the given number of MiB.
func fillCommand(set *flag.FlagSet) func(context.Context, []string) error {
	keepRunning := set.Bool("linger", false, "wait for SIGTERM then")
	return func(ctx context.Context, args []string) error {
		if len(args) != 2 {
			return errors.New("fill: want PATH MIB")
		}
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		f, err := os.Create(args[0])
		if err != nil {
			return err
		}
		chunk := bytes.Repeat([]byte("x"), 1<<20)
		for i := range n {
			if _, err := f.Write(chunk); err != nil {
				fmt.Printf("stopped after %d MiB: %v\n", i, err)
				return errors.Join(exitError(3), f.Close())
			}
		}
		if err := f.Close(); err != nil {
			return err
		}
		fmt.Printf("wrote %d MiB\n", n)
		if *keepRunning {
			ctx, stop := terminated(ctx)
			defer stop()
			<-ctx.Done()
		}
		return nil
	}
}

// renameat2 is the system call's number (its name is not in package syscall).
var renameat2 = map[string]uintptr{"amd64": 316, "arm64": 276, "arm": 382}

// renameExchange is RENAME_EXCHANGE of renameat2(2).
const renameExchange = 2

// swapCommand exchanges two names without a moment in which either is not
// there, again and again, as an attacker does who races with a mount.
func swapCommand(set *flag.FlagSet) func(context.Context, []string) error {
	every := set.Duration("every", time.Millisecond, "`time` between exchanges")
	times := set.Int("times", 0, "`number` of exchanges; 0 is until SIGTERM")
	return func(ctx context.Context, args []string) error {
		if len(args) != 2 {
			return errors.New("swap: want two paths")
		}
		ctx, stop := terminated(ctx)
		defer stop()
		for i := 0; *times == 0 || i < *times; i++ {
			if err := exchange(args[0], args[1]); err != nil {
				return err
			}
			if wait(ctx, *every) != nil {
				return nil
			}
		}
		return nil
	}
}

func exchange(a, b string) error {
	from, err := syscall.BytePtrFromString(a)
	if err != nil {
		return err
	}
	to, err := syscall.BytePtrFromString(b)
	if err != nil {
		return err
	}
	const cwd = ^uintptr(99) // AT_FDCWD is -100
	if _, _, errno := syscall.Syscall6(renameat2[runtime.GOARCH], cwd, uintptr(unsafe.Pointer(from)), cwd, uintptr(unsafe.Pointer(to)), renameExchange, 0); errno != 0 {
		return fmt.Errorf("exchange %s and %s: %w", a, b, errno)
	}
	return nil
}

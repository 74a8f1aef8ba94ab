package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func terminated(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
}

// wait ends early with the context.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ignoreCommand runs until it is killed.
func ignoreCommand(*flag.FlagSet) func(context.Context, []string) error {
	return func(context.Context, []string) error {
		seen := make(chan os.Signal, 8)
		signal.Notify(seen, syscall.SIGTERM, os.Interrupt)
		fmt.Println("ignoring SIGTERM")
		for s := range seen {
			fmt.Println("ignored", name(s))
		}
		return nil
	}
}

// trapCommand writes a line when it starts, for each signal, and when it
// ends: "TIME NAME WORD", the time in nanoseconds since 1970. Lines of
// several containers in one file are in their true order.
func trapCommand(set *flag.FlagSet) func(context.Context, []string) error {
	out := set.String("out", "", "`file` to append to; empty is standard output")
	who := set.String("name", "trap", "`name` in each line")
	delay := set.Duration("linger", 0, "`time` from the first signal to the end")
	life := set.Duration("life", 0, "end by itself after this `time`; 0 is never")
	code := set.Int("code", 0, "exit `code`")
	return func(ctx context.Context, _ []string) error {
		w := io.Writer(os.Stdout)
		if *out != "" {
			f, err := os.OpenFile(*out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
			if err != nil {
				return err
			}
			defer f.Close()
			w = f
		}
		say := func(word string) { fmt.Fprintf(w, "%d %s %s\n", time.Now().UnixNano(), *who, word) }
		seen := make(chan os.Signal, 8)
		signal.Notify(seen, syscall.SIGTERM, os.Interrupt, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGHUP, syscall.SIGQUIT)
		say("start")
		var end <-chan time.Time
		if *life > 0 {
			end = time.After(*life)
		}
		for {
			select {
			case s := <-seen:
				say(name(s))
				end = time.After(*delay)
			case <-end:
				say("end")
				if *code != 0 {
					return exitError(*code)
				}
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

func name(s os.Signal) string {
	switch s {
	case syscall.SIGTERM:
		return "TERM"
	case syscall.SIGINT:
		return "INT"
	case syscall.SIGUSR1:
		return "USR1"
	case syscall.SIGUSR2:
		return "USR2"
	case syscall.SIGHUP:
		return "HUP"
	case syscall.SIGQUIT:
		return "QUIT"
	}
	return s.String()
}

// exitCommand ends with the code of its one argument.
func exitCommand(set *flag.FlagSet) func(context.Context, []string) error {
	after := set.Duration("after", 0, "`time` to wait before")
	say := set.String("say", "", "`line` to print before")
	message := set.String("message", "", "write the text of say to this `file`, too")
	marker := set.String("once", "", "make this `file`; end with code 0 when it is there already")
	return func(ctx context.Context, args []string) error {
		if len(args) != 1 {
			return errors.New("exit: want one code")
		}
		code, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		if *say != "" {
			fmt.Println(*say)
		}
		if *message != "" {
			if err := os.WriteFile(*message, []byte(*say), 0o644); err != nil {
				return err
			}
		}
		ctx, stop := terminated(ctx)
		defer stop()
		if err := wait(ctx, *after); err != nil {
			return err
		}
		if *marker != "" {
			f, err := os.OpenFile(*marker, os.O_CREATE|os.O_EXCL, 0o644)
			if errors.Is(err, os.ErrExist) {
				return nil
			}
			if err != nil {
				return err
			}
			_ = f.Close() // nothing was written
		}
		if code == 0 {
			return nil
		}
		return exitError(code)
	}
}

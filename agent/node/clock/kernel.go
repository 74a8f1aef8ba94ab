package clock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// errEarly means that a timer without an alarm has expired, as after 2038 on a system
// whose seconds have 32 bits.
var errEarly = errors.New("arm wall clock timer: time is out of range")

// kernel is the machine's wall clock. Only one goroutine may call wait.
type kernel struct {
	file *os.File // timerfd, nil while it is closed
}

func (k *kernel) now() time.Time { return time.Now() }

// wait needs no thread and no further goroutine: Go's netpoller waits for the
// timer. The timer stays armed between two calls, so that no change is missed.
func (k *kernel) wait(ctx context.Context, alarm time.Time) (set bool, err error) {
	if ctx.Err() != nil {
		if k.file != nil {
			err = k.close()
		}
		return false, errors.Join(context.Cause(ctx), err)
	}
	if k.file == nil {
		if err := k.open(); err != nil {
			return false, err
		}
		if err := k.arm(alarm); err != nil {
			return false, errors.Join(err, k.close())
		}
		// A change before the timer was armed is visible now.
		return false, nil
	}
	if err := k.arm(alarm); err != nil {
		if errors.Is(err, unix.ECANCELED) {
			return true, nil
		}
		return false, errors.Join(err, k.close())
	}
	file := k.file
	stop := context.AfterFunc(ctx, func() { _ = file.SetReadDeadline(time.Unix(1, 0)) })
	var expirations [8]byte
	_, err = file.Read(expirations[:])
	if !stop() {
		return false, errors.Join(context.Cause(ctx), k.close())
	}
	switch {
	case err == nil && alarm.IsZero():
		return false, errors.Join(errEarly, k.close())
	case err == nil:
		return false, nil
	case errors.Is(err, unix.ECANCELED):
		return true, nil
	}
	return false, errors.Join(fmt.Errorf("wait for the clock to be set: %w", err), k.close())
}

func (k *kernel) open() error {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("create wall clock timer: %w", err)
	}
	k.file = os.NewFile(uintptr(fd), "timerfd")
	return nil
}

func (k *kernel) close() error {
	err := k.file.Close()
	k.file = nil
	return err
}

// never returns the latest time that a timer can be armed for.
func never() time.Time {
	if strconv.IntSize == 32 {
		return time.Unix(math.MaxInt32, 0)
	}
	return time.Unix(2*math.MaxInt32, 0)
}

// arm arms the timer for alarm; zero is never.
func (k *kernel) arm(alarm time.Time) error {
	at := never()
	if !alarm.IsZero() && alarm.Before(at) {
		at = alarm
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(at.UnixNano(), 1))}
	raw, err := k.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("arm wall clock timer: %w", err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &spec, nil)
	})
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("arm wall clock timer: %w", err)
	}
	return nil
}

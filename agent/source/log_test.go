package source_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// logged is what was logged at any level.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *logged) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(data)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// events is how many lines tell of an event.
func (l *logged) events() int { return strings.Count(l.String(), "msg=event ") }

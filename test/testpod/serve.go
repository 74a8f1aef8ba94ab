package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tinylet/tinylet/test/testpod/report"
)

// Kinds of health.
const (
	good = "good"
	bad  = "bad"
	hang = "hang"
)

// server answers probes as set with /set?health=good|bad|hang.
type server struct {
	health atomic.Value // string
	name   string
	out    io.Writer
	ended  chan int // the exit code that /exit?code=N asks for
}

// serveCommand serves on the given addresses until SIGTERM.
func serveCommand(set *flag.FlagSet) func(context.Context, []string) error {
	plain := set.String("http", "", "`address` for HTTP, such as :8080; HTTP/2 without TLS, too")
	secure := set.String("https", "", "`address` for HTTPS with a certificate of its own")
	raw := set.String("tcp", "", "`address` that accepts and closes connections")
	name := set.String("name", "serve", "`name` in the log")
	health := set.String("health", good, "how it `starts`: good, bad or hang")
	turns := set.Duration("good-after", 0, "`time` after which it turns good")
	delay := set.Duration("delay", 0, "`time` before it listens")
	out := set.String("out", "", "`file` to append the log to; empty is standard output")
	return func(ctx context.Context, _ []string) error {
		ctx, stop := terminated(ctx)
		defer stop()
		s := &server{name: *name, out: os.Stdout, ended: make(chan int, 1)}
		s.health.Store(*health)
		if *out != "" {
			f, err := os.OpenFile(*out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
			if err != nil {
				return err
			}
			defer f.Close()
			s.out = f
		}
		if wait(ctx, *delay) != nil {
			return nil
		}
		if *turns > 0 {
			timer := time.AfterFunc(*turns, func() { s.health.Store(good) })
			defer timer.Stop()
		}
		failed := make(chan error, 3)
		for _, start := range []struct {
			address string
			serve   func(net.Listener) error
		}{{*plain, s.http}, {*secure, s.https}, {*raw, acceptAll}} {
			if start.address == "" {
				continue
			}
			l, err := net.Listen("tcp", start.address)
			if err != nil {
				return err
			}
			defer l.Close()
			go func() { failed <- start.serve(l) }() // ends with the process
		}
		fmt.Fprintln(s.out, *name, "serves")
		select {
		case <-ctx.Done():
			fmt.Fprintln(s.out, *name, "ends")
			return nil
		case code := <-s.ended:
			return exitError(code)
		case err := <-failed:
			return err
		}
	}
}

func acceptAll(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		_ = c.Close()
	}
}

func (s *server) http(l net.Listener) error {
	srv := &http.Server{Handler: s.handler(), ErrorLog: log.New(s.out, "", 0), Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	return srv.Serve(l)
}

func (s *server) https(l net.Listener) error {
	cert, err := selfSigned()
	if err != nil {
		return err
	}
	// Probers that do not finish the handshake are of no interest.
	srv := &http.Server{Handler: s.handler(), ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}
	return srv.ServeTLS(l, "", "")
}

// selfSigned makes a certificate that nobody has reason to trust.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(10, 0, 0), DNSNames: []string{"program"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", s.answer)
	mux.HandleFunc("/grpc.health.v1.Health/Check", s.grpcHealth)
	mux.HandleFunc("/set", func(_ http.ResponseWriter, r *http.Request) { s.health.Store(r.URL.Query().Get("health")) })
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	})
	mux.HandleFunc("/exit", func(_ http.ResponseWriter, r *http.Request) {
		code, err := strconv.Atoi(r.URL.Query().Get("code"))
		if err != nil {
			code = 1
		}
		select {
		case s.ended <- code:
		default: // it ends already
		}
	})
	// Succeeds only for a request that has what a probe was configured to send.
	mux.HandleFunc("/header", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.Header.Get("X-Probe") != q.Get("x-probe") || (q.Has("host") && r.Host != q.Get("host")) {
			http.Error(w, fmt.Sprintf("host %q, headers %v", r.Host, r.Header), http.StatusBadRequest)
		}
	})
	mux.HandleFunc("/who", func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprintln(w, host)
	})
	mux.HandleFunc("/report", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%+v\n", report.Read(report.Ask{}))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(s.out, s.name, r.Method, r.URL, r.UserAgent())
		mux.ServeHTTP(w, r)
	})
}

func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	switch s.health.Load() {
	case bad:
		http.Error(w, "told to be bad", http.StatusInternalServerError)
	case hang:
		<-r.Context().Done()
	default:
		fmt.Fprintln(w, "ok")
	}
}

// grpcHealth answers the unary call Check of gRPC's health service (grpc:
// doc/PROTOCOL-HTTP2.md and doc/health-checking.md): five bytes of frame, then
// field 1 of the message, the status.
func (s *server) grpcHealth(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	const serving, notServing = 1, 2
	status := byte(serving)
	switch s.health.Load() {
	case bad:
		status = notServing
	case hang:
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	if _, err := w.Write([]byte{0, 0, 0, 0, 2, 1 << 3, status}); err != nil && !errors.Is(err, http.ErrHandlerTimeout) {
		return
	}
	w.Header().Set("Grpc-Status", "0")
}

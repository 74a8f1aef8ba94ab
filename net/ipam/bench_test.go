package ipam

import (
	"fmt"
	"testing"
)

// The first lease costs what the thousandth does.
func BenchmarkAllocateRelease(b *testing.B) {
	for _, held := range []int{0, 200, 1000} {
		b.Run(fmt.Sprintf("held=%d", held), func(b *testing.B) {
			benchmark(b, held, "10.42.0.0/16")
		})
	}
	b.Run("nine tenths full", func(b *testing.B) { benchmark(b, 228, "10.42.0.0/24") })
}

func benchmark(b *testing.B, held int, prefix string) {
	s := open(b, b.TempDir(), "a")
	net := ranges(prefix)
	for i := range held {
		allocate(b, s, Request{Owner: fmt.Sprint("held", i), Ranges: net})
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		owner := fmt.Sprint(i)
		allocate(b, s, Request{Owner: owner, Ranges: net})
		if err := s.Release(owner); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAllocateAgain(b *testing.B) {
	s := open(b, b.TempDir(), "a")
	r := Request{Owner: "o", Ranges: ranges("10.42.0.0/24", "fd00::/64")}
	b.ReportAllocs()
	for b.Loop() {
		allocate(b, s, r)
	}
}

func BenchmarkSetDetail(b *testing.B) {
	s := open(b, b.TempDir(), "a")
	allocate(b, s, Request{Owner: "o", Ranges: ranges("10.42.0.0/24")})
	detail := make([]byte, 200)
	b.ReportAllocs()
	for b.Loop() {
		detail[0]++
		if err := s.SetDetail("o", detail); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	open(b, dir, "a")
	b.ReportAllocs()
	for b.Loop() {
		s, err := Open(Config{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

func BenchmarkList(b *testing.B) {
	s := open(b, b.TempDir(), "a")
	for i := range 200 {
		allocate(b, s, Request{Owner: fmt.Sprint(i), Ranges: ranges("10.42.0.0/16")})
	}
	b.ReportAllocs()
	for b.Loop() {
		leases(b, s)
	}
}

// Collect without anything to free costs what List does, and reads the links in addition.
func BenchmarkCollect(b *testing.B) {
	s := open(b, b.TempDir(), "a")
	for i := range 200 {
		allocate(b, s, Request{Owner: fmt.Sprint(i), Ranges: ranges("10.42.0.0/16")})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Collect(nil); err != nil {
			b.Fatal(err)
		}
	}
}

// The cost of Allocate if the range is exhausted.
func BenchmarkExhausted(b *testing.B) {
	s := open(b, b.TempDir(), "a")
	r := Request{Ranges: ranges("10.42.0.0/24")}
	for i := range 253 {
		r.Owner = fmt.Sprint(i)
		allocate(b, s, r)
	}
	r.Owner = "late"
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Allocate(r); err == nil {
			b.Fatal("took one")
		}
	}
}

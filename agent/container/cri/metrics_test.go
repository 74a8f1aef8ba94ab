package cri

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/metrics/metricstest"
)

func TestMetrics(t *testing.T) {
	d := &Driver{durations: metrics.NewTimingVec(callBounds)}
	const service = "/runtime.v1.RuntimeService/"
	d.recordMetrics(service+"RunPodSandbox", nil, 2*time.Second, nil)
	d.recordMetrics(service+"RunPodSandbox", nil, 3*time.Second, errors.New("no"))
	d.recordMetrics(service+"ExecSync", &runtimeapi.ExecSyncResponse{}, time.Millisecond, nil)
	d.recordMetrics(service+"ExecSync", &runtimeapi.ExecSyncResponse{ExitCode: 1}, time.Millisecond, nil)
	d.recordMetrics("/runtime.v1.ImageService/ListImages", nil, time.Hour, nil)
	d.recordMetrics(service+"CallOfTomorrow", nil, time.Hour, nil)
	var out bytes.Buffer
	s := metrics.NewStream(&out)
	d.WriteMetrics(s)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if problems := metricstest.Problems(out.Bytes()); len(problems) > 0 {
		t.Errorf("%q in\n%s", problems, out.Bytes())
	}
	for _, want := range []string{
		"kubelet_runtime_operations_total{operation_type=\"run_podsandbox\"} 2\n",
		"kubelet_runtime_operations_total{operation_type=\"exec_sync\"} 2\n",
		"kubelet_runtime_operations_total{operation_type=\"list_images\"} 1\n",
		"kubelet_runtime_operations_errors_total{operation_type=\"run_podsandbox\"} 1\n",
		"kubelet_runtime_operations_errors_total{operation_type=\"exec_sync\"} 1\n",
		"kubelet_runtime_operations_duration_seconds_bucket{operation_type=\"run_podsandbox\",le=\"1.220703125\"} 0\n",
		"kubelet_runtime_operations_duration_seconds_bucket{operation_type=\"run_podsandbox\",le=\"3.0517578125\"} 2\n",
		"kubelet_runtime_operations_duration_seconds_sum{operation_type=\"run_podsandbox\"} 5\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "omorrow") || strings.Contains(out.String(), "errors_total{operation_type=\"list_images") {
		t.Errorf("text\n%s", out.String())
	}
	if n := len(callBounds); n != 14 || math.Abs(callBounds[n-1]-745.06) > .01 {
		t.Errorf("bounds %v", callBounds)
	}
}

// TestOperationsHaveNames checks that every call of the driver has a name.
func TestOperationsHaveNames(t *testing.T) {
	missing := map[string]bool{"ContainerEvents": true, "Calls": true, "Close": true, "WriteMetrics": true} // no calls with one answer
	driver := reflect.TypeFor[*Driver]()
	for i := range driver.NumMethod() {
		name := driver.Method(i).Name
		if operations[name] == "" && !missing[name] {
			t.Errorf("%s has no operation", name)
		}
	}
	if len(operations) != driver.NumMethod()-len(missing) {
		t.Errorf("%d operations for %d methods", len(operations), driver.NumMethod()-len(missing))
	}
}

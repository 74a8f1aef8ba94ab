// Command metricsserver is the stock metrics-server, built from its published
// module: what scrapes the nodes for kubectl top.
package main

import (
	"os"

	"k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"

	"sigs.k8s.io/metrics-server/cmd/metrics-server/app"
)

func main() {
	os.Exit(cli.Run(app.NewMetricsServerCommand(server.SetupSignalHandler())))
}

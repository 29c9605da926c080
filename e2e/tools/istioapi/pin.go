// Package istioapi keeps its module's pin from being tidied away: nothing here is run.
package istioapi

import _ "istio.io/api/annotation" // the definitions come with it
